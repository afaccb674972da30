//! The newest offset of each key, in one table of fixed size.
//!
//! The table has hashes of the keys (SipHash-2-4 with 128 bits): with a secret key, nobody can
//! choose two record keys with the same hash.

use std::io;

use memmap2::MmapMut;

/// Two words of the hash and the offset after the newest record, 0 in a free slot.
pub const SLOT_BYTES: usize = 24;
/// Slots of so many keys are brought into the cache at the same time.
pub const GROUP: usize = 16;
/// A smaller table takes memory that the process has used before.
const MIN_MAPPED_BYTES: usize = 8 << 20;

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Hash {
    low: u64,
    high: u64,
}

pub struct KeyMap {
    memory: Memory,
    slot_count: usize,
    used: usize,
    secret: (u64, u64),
}

/// The map has no room for another key.
#[derive(PartialEq, Eq, Debug)]
pub struct Full;

/// Zeros. A large map takes huge pages from the system, and uses only those that it writes to.
enum Memory {
    Small(Vec<u8>),
    Large(MmapMut),
}

impl Memory {
    fn new(size: usize) -> io::Result<Self> {
        if size < MIN_MAPPED_BYTES {
            let mut memory = Vec::new();
            memory
                .try_reserve_exact(size)
                .map_err(|error| io::Error::new(io::ErrorKind::OutOfMemory, error))?;
            memory.resize(size, 0);
            return Ok(Self::Small(memory));
        }
        let memory = MmapMut::map_anon(size)?;
        #[cfg(target_os = "linux")]
        let _ = memory.advise(memmap2::Advice::HugePage); // only faster: an error does no harm
        Ok(Self::Large(memory))
    }

    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Small(memory) => memory,
            Self::Large(memory) => memory,
        }
    }

    #[inline(always)]
    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Small(memory) => memory,
            Self::Large(memory) => memory,
        }
    }
}

impl KeyMap {
    /// Make a map with at least two slots, one of which is always free.
    pub fn new(slot_count: usize, secret: (u64, u64)) -> io::Result<Self> {
        let slot_count = slot_count.max(2);
        let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
        let size = slot_count.checked_mul(SLOT_BYTES).ok_or_else(too_large)?;
        let memory = Memory::new(size)?;
        Ok(Self {
            memory,
            slot_count,
            used: 0,
            secret,
        })
    }

    pub fn used(&self) -> usize {
        self.used
    }

    #[inline(always)]
    pub fn hash(&self, key: &[u8]) -> Hash {
        sip_hash(key, self.secret)
    }

    /// Read the slots at which the search for keys begins: all reads go on at the same time.
    #[inline(always)]
    pub fn touch(&self, hashes: &[Hash]) {
        let mut sum = 0;
        for &hash in hashes {
            sum ^= word(self.slot(self.first_slot(hash)), 2);
        }
        std::hint::black_box(sum);
    }

    /// Note the offset of the newest record with a key.
    #[inline(always)]
    pub fn put(&mut self, hash: Hash, offset: i64) -> Result<(), Full> {
        let index = self.find(hash);
        if word(self.slot(index), 2) == 0 {
            if self.used + 1 >= self.slot_count {
                return Err(Full);
            }
            self.used += 1;
        }
        let slot = &mut self.memory.bytes_mut()[index * SLOT_BYTES..][..SLOT_BYTES];
        slot[..8].copy_from_slice(&hash.low.to_ne_bytes());
        slot[8..16].copy_from_slice(&hash.high.to_ne_bytes());
        slot[16..].copy_from_slice(&(offset as u64).wrapping_add(1).to_ne_bytes());
        Ok(())
    }

    /// Return the offset of the newest record with a key, -1 if there is none.
    #[inline(always)]
    pub fn newest_offset(&self, hash: Hash) -> i64 {
        word(self.slot(self.find(hash)), 2).wrapping_sub(1) as i64
    }

    #[inline(always)]
    fn slot(&self, index: usize) -> &[u8; SLOT_BYTES] {
        let bytes = &self.memory.bytes()[index * SLOT_BYTES..][..SLOT_BYTES];
        bytes.try_into().expect("a slice of this length")
    }

    #[inline(always)]
    fn first_slot(&self, hash: Hash) -> usize {
        ((u128::from(hash.low) * self.slot_count as u128) >> 64) as usize
    }

    /// Return the slot of a key, or the free one where it belongs.
    #[inline(always)]
    fn find(&self, hash: Hash) -> usize {
        let mut index = self.first_slot(hash);
        loop {
            let slot = self.slot(index);
            if word(slot, 2) == 0 || (word(slot, 0) == hash.low && word(slot, 1) == hash.high) {
                return index;
            }
            index += 1;
            if index == self.slot_count {
                index = 0;
            }
        }
    }
}

#[inline(always)]
fn word(slot: &[u8; SLOT_BYTES], number: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&slot[8 * number..8 * number + 8]);
    u64::from_ne_bytes(bytes)
}

struct SipState(u64, u64, u64, u64);

impl SipState {
    #[inline(always)]
    fn rounds(&mut self, count: usize) {
        let Self(v0, v1, v2, v3) = self;
        for _ in 0..count {
            *v0 = v0.wrapping_add(*v1);
            *v1 = v1.rotate_left(13) ^ *v0;
            *v0 = v0.rotate_left(32);
            *v2 = v2.wrapping_add(*v3);
            *v3 = v3.rotate_left(16) ^ *v2;
            *v0 = v0.wrapping_add(*v3);
            *v3 = v3.rotate_left(21) ^ *v0;
            *v2 = v2.wrapping_add(*v1);
            *v1 = v1.rotate_left(17) ^ *v2;
            *v2 = v2.rotate_left(32);
        }
    }

    #[inline(always)]
    fn take(&mut self, word: u64) {
        self.3 ^= word;
        self.rounds(2);
        self.0 ^= word;
    }

    #[inline(always)]
    fn sum(&self) -> u64 {
        self.0 ^ self.1 ^ self.2 ^ self.3
    }
}

/// SipHash-2-4 with 128 bits (Aumasson and Bernstein).
#[inline(always)]
fn sip_hash(key: &[u8], (k0, k1): (u64, u64)) -> Hash {
    let mut state = SipState(
        0x736f_6d65_7073_6575 ^ k0,
        0x646f_7261_6e64_6f6d ^ k1 ^ 0xee,
        0x6c79_6765_6e65_7261 ^ k0,
        0x7465_6462_7974_6573 ^ k1,
    );
    let mut words = key.chunks_exact(8);
    for bytes in &mut words {
        state.take(u64::from_le_bytes(bytes.try_into().expect("8 bytes")));
    }
    let mut last = (key.len() as u64) << 56;
    for (index, &byte) in words.remainder().iter().enumerate() {
        last |= u64::from(byte) << (8 * index);
    }
    state.take(last);
    state.2 ^= 0xee;
    state.rounds(4);
    let low = state.sum();
    state.1 ^= 0xdd;
    state.rounds(4);
    Hash {
        low,
        high: state.sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_the_reference() {
        // From vectors.h of the reference implementation: the key is 00 to 0f, the text 00 to n-1.
        let secret = (0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
        let text: Vec<u8> = (0..15).collect();
        let bytes = |hash: Hash| [hash.low.to_le_bytes(), hash.high.to_le_bytes()].concat();
        assert_eq!(
            bytes(sip_hash(&[], secret)),
            [
                0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55,
                0x02, 0x93
            ]
        );
        assert_eq!(
            bytes(sip_hash(&text, secret)),
            [
                0x54, 0x93, 0xe9, 0x99, 0x33, 0xb0, 0xa8, 0x11, 0x7e, 0x08, 0xec, 0x0f, 0x97, 0xcf,
                0xc3, 0xd9
            ]
        );
    }

    #[test]
    fn one_slot_stays_free() {
        let mut map = KeyMap::new(5, (1, 2)).unwrap();
        for number in 0..4_u8 {
            assert_eq!(map.put(map.hash(&[number]), i64::from(number)), Ok(()));
        }
        assert_eq!(map.put(map.hash(b"another"), 9), Err(Full));
        assert_eq!(map.put(map.hash(&[2]), 7), Ok(()));
        assert_eq!(map.newest_offset(map.hash(&[2])), 7);
        assert_eq!(map.newest_offset(map.hash(b"another")), -1);
        assert_eq!(map.used(), 4);
    }

    #[test]
    fn more_memory_than_there_can_be_is_refused() {
        assert!(KeyMap::new(usize::MAX / 2, (1, 2)).is_err());
        assert!(KeyMap::new(1 << 50, (1, 2)).is_err());
    }
}
