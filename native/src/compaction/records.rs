//! Uncompressed records of format 2 (KIP-98), one after the other.

use crate::numbers::take_number;

const MIN_RECORD_BYTES: i64 = 6;

#[derive(Clone, Copy, Default)]
pub struct Record<'a> {
    pub timestamp_delta: i64,
    pub offset_delta: i64,
    pub key: Option<&'a [u8]>,
    pub is_tombstone: bool,
    /// Everything behind the timestamp delta.
    pub rest: &'a [u8],
}

/// Take the next record; None if the bytes are not exactly a record.
#[inline(always)]
pub fn take_record<'a>(data: &mut &'a [u8]) -> Option<Record<'a>> {
    let size = take_number(data)?;
    if size < MIN_RECORD_BYTES || size > data.len() as i64 {
        return None;
    }
    let (body, behind) = data.split_at(size as usize);
    *data = behind;
    let mut fields = &body[1..];
    let timestamp_delta = take_number(&mut fields)?;
    let rest = fields;
    let offset_delta = take_number(&mut fields)?;
    if !(0..=i64::from(i32::MAX)).contains(&offset_delta) {
        return None;
    }
    let key = take_field(&mut fields)?;
    let value = take_field(&mut fields)?;
    let headers = take_number(&mut fields)?;
    if headers < 0 || headers > fields.len() as i64 {
        return None;
    }
    for _ in 0..headers {
        take_field(&mut fields)??;
        take_field(&mut fields)?;
    }
    fields.is_empty().then_some(Record {
        timestamp_delta,
        offset_delta,
        key,
        is_tombstone: value.is_none(),
        rest,
    })
}

/// Take a field with its length before it, which is -1 for null; None if it exceeds the data.
#[inline(always)]
fn take_field<'a>(data: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let size = take_number(data)?;
    if size == -1 {
        return Some(None);
    }
    let (field, behind) = data.split_at_checked(usize::try_from(size).ok()?)?;
    *data = behind;
    Some(Some(field))
}
