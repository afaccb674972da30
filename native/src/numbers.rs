//! Numbers of Kafka's formats: big-endian, and zig-zag of variable length.

/// The longest zig-zag number of 64 bits.
pub const MAX_NUMBER_BYTES: usize = 10;

pub fn i16_at(data: &[u8], at: usize) -> i16 {
    i16::from_be_bytes(array_at(data, at))
}

pub fn i32_at(data: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(array_at(data, at))
}

pub fn u32_at(data: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array_at(data, at))
}

pub fn i64_at(data: &[u8], at: usize) -> i64 {
    i64::from_be_bytes(array_at(data, at))
}

#[inline(always)]
fn array_at<const N: usize>(data: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&data[at..at + N]);
    bytes
}

/// Take a number from the beginning of `data`; None if it does not end there, or exceeds 64 bits.
#[inline(always)]
pub fn take_number(data: &mut &[u8]) -> Option<i64> {
    take_short_number(data).or_else(|| take_long_number(data, true))
}

/// Take a number as the walks over records do: bits above the 64th are ignored.
#[inline(always)]
pub fn take_number_leniently(data: &mut &[u8]) -> Option<i64> {
    take_short_number(data).or_else(|| take_long_number(data, false))
}

/// Take a number of one or two bytes, as most of them are.
#[inline(always)]
fn take_short_number(data: &mut &[u8]) -> Option<i64> {
    match *data {
        [only, rest @ ..] if *only < 0x80 => {
            *data = rest;
            Some(from_zig_zag(u64::from(*only)))
        }
        [first, second, rest @ ..] if *second < 0x80 => {
            *data = rest;
            Some(from_zig_zag(
                u64::from(*first & 0x7f) | u64::from(*second) << 7,
            ))
        }
        _ => None,
    }
}

#[cold]
#[inline(never)]
fn take_long_number(data: &mut &[u8], is_strict: bool) -> Option<i64> {
    let mut raw = 0;
    for (index, &byte) in data.iter().take(MAX_NUMBER_BYTES).enumerate() {
        if is_strict && index == MAX_NUMBER_BYTES - 1 && byte > 1 {
            return None;
        }
        raw |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            *data = &data[index + 1..];
            return Some(from_zig_zag(raw));
        }
    }
    None
}

#[inline(always)]
fn from_zig_zag(raw: u64) -> i64 {
    (raw >> 1) as i64 ^ -((raw & 1) as i64)
}

fn to_zig_zag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Write a number at `at`; return the position behind it.
#[inline(always)]
pub fn write_number(out: &mut [u8], mut at: usize, value: i64) -> usize {
    let mut raw = to_zig_zag(value);
    while raw >= 0x80 {
        out[at] = raw as u8 | 0x80;
        raw >>= 7;
        at += 1;
    }
    out[at] = raw as u8;
    at + 1
}

/// Return the bytes that a number takes.
pub fn number_bytes(value: i64) -> usize {
    (to_zig_zag(value) | 1).ilog2() as usize / 7 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_read_as_it_was_written() {
        for value in [
            0,
            -1,
            1,
            63,
            64,
            -65,
            8191,
            8192,
            1 << 40,
            i64::MAX,
            i64::MIN,
        ] {
            let mut out = [0; MAX_NUMBER_BYTES];
            let end = write_number(&mut out, 0, value);
            assert_eq!(end, number_bytes(value));
            for take in [take_number, take_number_leniently] {
                let mut data = &out[..end];
                assert_eq!((take(&mut data), data.len()), (Some(value), 0));
                assert_eq!(take(&mut &out[..end - 1]), None);
            }
        }
    }

    #[test]
    fn bits_above_the_64th_are_refused_or_ignored() {
        let long = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x03];
        assert_eq!(take_number(&mut &long[..]), None);
        assert_eq!(take_number_leniently(&mut &long[..]), Some(i64::MIN));
        let endless = [0x80; 11];
        assert_eq!(take_number(&mut &endless[..]), None);
        assert_eq!(take_number_leniently(&mut &endless[..]), None);
    }
}
