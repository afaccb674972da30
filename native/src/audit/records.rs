//! The walk over uncompressed records: check them, and make digests of keys and values.

use crate::numbers::{i64_at, take_number_leniently};

const MIN_RECORD_BYTES: i64 = 6;

/// What is wrong with the records of a batch; the numbers are those of `RECORD_FINDINGS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    EndsEarly = 1,
    WrongLength,
    WrongField,
    Trailing,
    NullHeaderKey,
    WrongOffset,
    WrongOrder,
}

/// A finding, and the byte of the records at which the walk stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    pub finding: Finding,
    pub byte: usize,
}

/// The fields of one record.
pub struct Fields<'a> {
    pub offset_delta: i64,
    pub key: Option<&'a [u8]>,
    pub has_value: bool,
    /// The bytes from the length of the key on.
    pub content: &'a [u8],
}

/// Check the records of a batch, and give each of them to `on_record`.
///
/// Return where they end.
#[inline(always)]
pub fn walk_records<'a>(
    data: &'a [u8],
    count: i64,
    last_delta: i64,
    mut on_record: impl FnMut(Fields<'a>),
) -> Result<usize, Damage> {
    let damage = |finding, byte| Err(Damage { finding, byte });
    let mut left = data;
    let mut before = -1;
    for _ in 0..count {
        let Some(size) = take_number_leniently(&mut left) else {
            return damage(Finding::EndsEarly, 0);
        };
        if size < MIN_RECORD_BYTES || size > left.len() as i64 {
            return damage(Finding::EndsEarly, data.len() - left.len());
        }
        let (body, behind) = left.split_at(size as usize);
        let at = |fields: &[u8]| data.len() - behind.len() - fields.len();
        let mut fields = &body[1..];
        let deltas = take_number_leniently(&mut fields) // of the timestamp
            .and_then(|_| take_number_leniently(&mut fields));
        let Some(offset_delta) = deltas else {
            return damage(Finding::WrongLength, 0);
        };
        if offset_delta < 0 || offset_delta > last_delta {
            return damage(Finding::WrongOffset, at(fields));
        }
        if offset_delta <= before {
            return damage(Finding::WrongOrder, at(fields));
        }
        before = offset_delta;
        let content = fields;
        let (key, has_value) = match take_fields(&mut fields) {
            Ok(key_and_value) => key_and_value,
            Err(Stop::Unreadable) => return damage(Finding::WrongLength, 0),
            Err(Stop::At(finding)) => return damage(finding, at(fields)),
        };
        on_record(Fields {
            offset_delta,
            key,
            has_value,
            content,
        });
        left = behind;
    }
    let end = data.len() - left.len();
    match left {
        [] => Ok(end),
        _ => damage(Finding::Trailing, end),
    }
}

/// Check the records of a batch.
pub fn check_records(data: &[u8], count: i64, last_delta: i64) -> Result<usize, Damage> {
    walk_records(data, count, last_delta, |_| ())
}

enum Stop {
    /// A number does not end in the record.
    Unreadable,
    At(Finding),
}

/// Take a record, from the length of its key on; return the key, and whether there is a value.
#[inline(always)]
fn take_fields<'a>(data: &mut &'a [u8]) -> Result<(Option<&'a [u8]>, bool), Stop> {
    let key = take_field(data)?;
    let value = take_field(data)?;
    let count = take_number_leniently(data).ok_or(Stop::Unreadable)?;
    if count < 0 || count > data.len() as i64 / 2 {
        return Err(Stop::At(Finding::WrongField));
    }
    for _ in 0..count {
        take_header_key(data)?;
        take_field(data)?;
    }
    match data.is_empty() {
        true => Ok((key, value.is_some())),
        false => Err(Stop::At(Finding::WrongLength)),
    }
}

/// Take a field, which may be null.
#[inline(always)]
fn take_field<'a>(data: &mut &'a [u8]) -> Result<Option<&'a [u8]>, Stop> {
    match take_number_leniently(data).ok_or(Stop::Unreadable)? {
        -1 => Ok(None),
        size => take_bytes(data, size).map(Some),
    }
}

#[inline(always)]
fn take_header_key<'a>(data: &mut &'a [u8]) -> Result<&'a [u8], Stop> {
    match take_number_leniently(data).ok_or(Stop::Unreadable)? {
        size if size < 0 => Err(Stop::At(Finding::NullHeaderKey)),
        size => take_bytes(data, size),
    }
}

#[inline(always)]
fn take_bytes<'a>(data: &mut &'a [u8], size: i64) -> Result<&'a [u8], Stop> {
    let size = usize::try_from(size).ok();
    let Some((bytes, behind)) = size.and_then(|size| data.split_at_checked(size)) else {
        return Err(Stop::At(Finding::WrongField));
    };
    *data = behind;
    Ok(bytes)
}

const HIGH_SEED: u64 = 0x1B87_3593_CC9E_2D51;
const LOW_SEED: u64 = 0x1656_67B1_9E37_79F9;
const DIGEST_FACTOR: u64 = 0x2545_F491_4F6C_DD1D;
const TOMBSTONE: i64 = 0;

/// The digest of a record with a key: two words of the key, the offset, and the content.
pub type RecordDigest = [i64; 4];

/// The hash of `record_walk.py`: digests from both are compared with each other.
fn digest_of(data: &[u8], seed: u64) -> u64 {
    let mut digest = seed ^ (data.len() as u64).wrapping_mul(DIGEST_FACTOR);
    let mut words = data.chunks_exact(8);
    for word in &mut words {
        digest = (digest ^ i64_at(word, 0) as u64).wrapping_mul(DIGEST_FACTOR);
        digest ^= digest >> 29;
    }
    let rest = words.remainder().iter();
    let rest = rest.fold(0, |rest, &byte| rest << 8 | u64::from(byte));
    digest = (digest ^ rest).wrapping_mul(DIGEST_FACTOR);
    digest ^= digest >> 29;
    digest = digest.wrapping_mul(DIGEST_FACTOR);
    digest ^ digest >> 32
}

/// Add the digests of a batch's records that have a key; none if the batch contradicts itself.
pub fn add_digests(
    data: &[u8],
    count: i64,
    base_offset: i64,
    last_delta: i64,
    digests: &mut Vec<RecordDigest>,
) {
    let before = digests.len();
    let walked = walk_records(data, count, last_delta, |record| {
        let Some(key) = record.key else { return };
        digests.push([
            digest_of(key, HIGH_SEED) as i64,
            digest_of(key, LOW_SEED) as i64,
            base_offset.wrapping_add(record.offset_delta),
            match record.has_value {
                true => (digest_of(record.content, LOW_SEED) | 1) as i64,
                false => TOMBSTONE,
            },
        ]);
    });
    if walked.is_err() {
        digests.truncate(before);
    }
}
