//! Requests that the lane can serve, and their responses, byte for byte as Python writes them.
//!
//! A parser returns None for whatever it does not take: malformed bytes, versions and fields that
//! are rare. Such a frame goes up to the event loop, which has an answer for each.

use std::ops::Range;

pub const PRODUCE: i16 = 0;
pub const FETCH: i16 = 1;
const FIRST_PRODUCE: i16 = 3;
const LAST_PRODUCE: i16 = 13;
const FLEXIBLE_PRODUCE: i16 = 9;
const PRODUCE_TOPIC_IDS: i16 = 13;
const FIRST_FETCH: i16 = 4;
const LAST_FETCH: i16 = 18;
const FLEXIBLE_FETCH: i16 = 12;
const FETCH_TOPIC_IDS: i16 = 13;
const FETCH_REPLICA_STATE: i16 = 15;
/// A request with more partitions goes up: Python has the limits for such.
const MAX_PARTITIONS: usize = 1024;

/// A cursor over a frame.
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, at: 0 }
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn fixed<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub fn int8(&mut self) -> Option<i8> {
        Some(i8::from_be_bytes(self.fixed()?))
    }

    pub fn int16(&mut self) -> Option<i16> {
        Some(i16::from_be_bytes(self.fixed()?))
    }

    pub fn int32(&mut self) -> Option<i32> {
        Some(i32::from_be_bytes(self.fixed()?))
    }

    pub fn int64(&mut self) -> Option<i64> {
        Some(i64::from_be_bytes(self.fixed()?))
    }

    fn uvarint(&mut self) -> Option<usize> {
        let mut value = 0u64;
        for shift in (0..35).step_by(7) {
            let byte = self.fixed::<1>()?[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return (value <= u64::from(u32::MAX)).then_some(value as usize);
            }
        }
        None
    }

    /// The length of an array, string or bytes; None also stands for a null, which is rare.
    fn length(&mut self, is_flexible: bool) -> Option<usize> {
        if is_flexible {
            self.uvarint()?.checked_sub(1)
        } else {
            usize::try_from(self.int32()?).ok()
        }
    }

    fn string(&mut self, is_flexible: bool) -> Option<Range<usize>> {
        let length = if is_flexible {
            self.uvarint()?.checked_sub(1)?
        } else {
            usize::try_from(self.int16()?).ok()?
        };
        let start = self.at;
        std::str::from_utf8(self.take(length)?).ok()?;
        Some(start..self.at)
    }

    /// No tagged fields: requests of clients have none.
    fn no_tags(&mut self, is_flexible: bool) -> Option<()> {
        (!is_flexible || self.fixed::<1>()?[0] == 0).then_some(())
    }
}

/// The header of a request, and where its body starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub api_key: i16,
    pub version: i16,
    pub correlation_id: i32,
    pub body: usize,
}

/// Read the header of a Produce or Fetch request of a version that the lane serves.
pub fn read_header(frame: &[u8]) -> Option<Header> {
    let mut reader = Reader::new(frame);
    let (api_key, version) = (reader.int16()?, reader.int16()?);
    let is_flexible = match api_key {
        PRODUCE if (FIRST_PRODUCE..=LAST_PRODUCE).contains(&version) => version >= FLEXIBLE_PRODUCE,
        FETCH if (FIRST_FETCH..=LAST_FETCH).contains(&version) => version >= FLEXIBLE_FETCH,
        _ => return None,
    };
    let correlation_id = reader.int32()?;
    if let Ok(length) = usize::try_from(reader.int16()?) {
        std::str::from_utf8(reader.take(length)?).ok()?;
    }
    reader.no_tags(is_flexible)?;
    Some(Header {
        api_key,
        version,
        correlation_id,
        body: reader.at,
    })
}

/// A topic as a request names it: the range of its name, or its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopicKey {
    Name(Range<usize>),
    Id([u8; 16]),
}

#[derive(Clone, Debug)]
pub struct ProducePart {
    /// The topic, at its first partition of the request.
    pub topic: usize,
    pub index: i32,
    pub records: Range<usize>,
}

#[derive(Debug, Default)]
pub struct Produce {
    pub acks: i16,
    pub topics: Vec<TopicKey>,
    pub parts: Vec<ProducePart>,
}

/// Read a Produce request without transactional id; each topic has at least one partition.
pub fn read_produce(frame: &[u8], header: &Header) -> Option<Produce> {
    let version = header.version;
    let is_flexible = version >= FLEXIBLE_PRODUCE;
    let mut reader = Reader {
        bytes: frame,
        at: header.body,
    };
    let has_no_transaction = if is_flexible {
        reader.uvarint()? == 0
    } else {
        reader.int16()? == -1
    };
    if !has_no_transaction {
        return None;
    }
    let mut request = Produce {
        acks: reader.int16()?,
        ..Produce::default()
    };
    reader.int32()?; // the timeout, for which no request of the lane waits
    for topic in 0..reader.length(is_flexible)? {
        let key = if version >= PRODUCE_TOPIC_IDS {
            TopicKey::Id(reader.fixed()?)
        } else {
            TopicKey::Name(reader.string(is_flexible)?)
        };
        request.topics.push(key);
        let count = reader.length(is_flexible)?;
        if count == 0 || count + request.parts.len() > MAX_PARTITIONS {
            return None;
        }
        for _ in 0..count {
            let index = reader.int32()?;
            let length = reader.length(is_flexible)?;
            let start = reader.at;
            reader.take(length)?;
            request.parts.push(ProducePart {
                topic,
                index,
                records: start..reader.at,
            });
            reader.no_tags(is_flexible)?;
        }
        reader.no_tags(is_flexible)?;
    }
    reader.no_tags(is_flexible)?;
    (!request.parts.is_empty()).then_some(request)
}

#[derive(Clone, Debug)]
pub struct FetchPart {
    pub topic: usize,
    pub index: i32,
    pub leader_epoch: i32,
    pub offset: i64,
    pub max_bytes: i32,
}

#[derive(Clone, Debug, Default)]
pub struct Fetch {
    pub max_wait_ms: i32,
    pub min_bytes: i32,
    pub max_bytes: i32,
    pub is_committed: bool,
    pub session_id: i32,
    pub session_epoch: i32,
    pub has_rack: bool,
    pub topics: Vec<TopicKey>,
    pub parts: Vec<FetchPart>,
}

/// Read a consumer's Fetch request.
pub fn read_fetch(frame: &[u8], header: &Header) -> Option<Fetch> {
    let version = header.version;
    let is_flexible = version >= FLEXIBLE_FETCH;
    let mut reader = Reader {
        bytes: frame,
        at: header.body,
    };
    if version < FETCH_REPLICA_STATE && reader.int32()? >= 0 {
        return None;
    }
    let mut request = Fetch {
        max_wait_ms: reader.int32()?,
        min_bytes: reader.int32()?,
        max_bytes: reader.int32()?,
        is_committed: reader.int8()? == 1,
        session_epoch: -1,
        ..Fetch::default()
    };
    if version >= 7 {
        request.session_id = reader.int32()?;
        request.session_epoch = reader.int32()?;
    }
    for topic in 0..reader.length(is_flexible)? {
        let key = if version >= FETCH_TOPIC_IDS {
            TopicKey::Id(reader.fixed()?)
        } else {
            TopicKey::Name(reader.string(is_flexible)?)
        };
        request.topics.push(key);
        let count = reader.length(is_flexible)?;
        if count == 0 || count + request.parts.len() > MAX_PARTITIONS {
            return None;
        }
        for _ in 0..count {
            request
                .parts
                .push(read_fetch_part(&mut reader, version, topic)?);
        }
        reader.no_tags(is_flexible)?;
    }
    if version >= 7 && reader.length(is_flexible)? != 0 {
        return None; // forgotten partitions are rare
    }
    if version >= 11 {
        request.has_rack = !reader.string(is_flexible)?.is_empty();
    }
    reader.no_tags(is_flexible)?;
    Some(request)
}

fn read_fetch_part(reader: &mut Reader<'_>, version: i16, topic: usize) -> Option<FetchPart> {
    let index = reader.int32()?;
    let leader_epoch = if version >= 9 { reader.int32()? } else { -1 };
    let offset = reader.int64()?;
    if version >= 12 && reader.int32()? >= 0 {
        return None; // a last fetched epoch asks for a comparison of the logs
    }
    if version >= 5 {
        reader.int64()?; // the log start of a follower
    }
    let max_bytes = reader.int32()?;
    reader.no_tags(version >= FLEXIBLE_FETCH)?;
    Some(FetchPart {
        topic,
        index,
        leader_epoch,
        offset,
        max_bytes,
    })
}

// -- responses

pub fn put_uvarint(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_count(out: &mut Vec<u8>, count: usize, is_flexible: bool) {
    if is_flexible {
        put_uvarint(out, count + 1);
    } else {
        out.extend((count as i32).to_be_bytes());
    }
}

fn put_topic(out: &mut Vec<u8>, frame: &[u8], key: &TopicKey, is_flexible: bool) {
    match key {
        TopicKey::Id(id) => out.extend(id),
        TopicKey::Name(range) => {
            let name = &frame[range.clone()];
            if is_flexible {
                put_uvarint(out, name.len() + 1);
            } else {
                out.extend((name.len() as i16).to_be_bytes());
            }
            out.extend(name);
        }
    }
}

fn put_tags(out: &mut Vec<u8>, is_flexible: bool) {
    if is_flexible {
        out.push(0);
    }
}

/// Reserve the place of the size, and write the header. Returns where the frame starts.
fn begin_response(out: &mut Vec<u8>, correlation_id: i32, is_flexible: bool) -> usize {
    let start = out.len();
    out.extend([0; 4]);
    out.extend(correlation_id.to_be_bytes());
    put_tags(out, is_flexible);
    start
}

fn end_response(out: &mut [u8], start: usize, size_after: usize) {
    let size = (out.len() - start - 4 + size_after) as i32;
    out[start..start + 4].copy_from_slice(&size.to_be_bytes());
}

/// What a partition of a Produce request got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Produced {
    pub error_code: i16,
    pub base_offset: i64,
    pub log_append_time_ms: i64,
    pub log_start_offset: i64,
}

pub fn write_produced(
    out: &mut Vec<u8>,
    frame: &[u8],
    header: &Header,
    request: &Produce,
    results: &[Produced],
) {
    let is_flexible = header.version >= FLEXIBLE_PRODUCE;
    let start = begin_response(out, header.correlation_id, is_flexible);
    put_count(out, request.topics.len(), is_flexible);
    let mut next = 0;
    for (topic, key) in request.topics.iter().enumerate() {
        put_topic(out, frame, key, is_flexible);
        let count = request.parts[next..]
            .iter()
            .take_while(|part| part.topic == topic)
            .count();
        put_count(out, count, is_flexible);
        let parts = &request.parts[next..next + count];
        for (part, result) in parts.iter().zip(&results[next..next + count]) {
            out.extend(part.index.to_be_bytes());
            out.extend(result.error_code.to_be_bytes());
            out.extend(result.base_offset.to_be_bytes());
            out.extend(result.log_append_time_ms.to_be_bytes());
            if header.version >= 5 {
                out.extend(result.log_start_offset.to_be_bytes());
            }
            if header.version >= 8 {
                put_count(out, 0, is_flexible); // record errors
                if is_flexible {
                    out.push(0); // no error message
                } else {
                    out.extend((-1i16).to_be_bytes());
                }
            }
            put_tags(out, is_flexible);
        }
        next += count;
        put_tags(out, is_flexible);
    }
    out.extend(0i32.to_be_bytes()); // throttle time
    put_tags(out, is_flexible);
    end_response(out, start, 0);
}

/// The offsets of a partition in a Fetch response, and the size of the records that follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fetched {
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    pub log_start_offset: i64,
    pub records_bytes: usize,
}

/// Write a Fetch response without its records.
///
/// Args:
///     shown: the partitions that the response contains, by their place in the request.
///     gaps: gets, in the order of the response, the place of a partition in `shown`, and the place
///         in `out` behind which its records belong.
pub fn write_fetched(
    out: &mut Vec<u8>,
    gaps: &mut Vec<(usize, usize)>,
    header: &Header,
    request: &Fetch,
    names: &[u8],
    shown: &[(usize, Fetched)],
) {
    let version = header.version;
    let is_flexible = version >= FLEXIBLE_FETCH;
    let start = begin_response(out, header.correlation_id, is_flexible);
    out.extend(0i32.to_be_bytes()); // throttle time
    if version >= 7 {
        out.extend(0i16.to_be_bytes());
        out.extend(request.session_id.to_be_bytes());
    }
    let groups = topics_of(request, shown);
    put_count(out, groups.len(), is_flexible);
    let mut records_bytes = 0;
    for (topic, members) in &groups {
        put_topic(out, names, &request.topics[*topic], is_flexible);
        put_count(out, members.len(), is_flexible);
        for place in members {
            let (at, fetched) = &shown[*place];
            let part = &request.parts[*at];
            out.extend(part.index.to_be_bytes());
            out.extend(0i16.to_be_bytes());
            out.extend(fetched.high_watermark.to_be_bytes());
            out.extend(fetched.last_stable_offset.to_be_bytes());
            if version >= 5 {
                out.extend(fetched.log_start_offset.to_be_bytes());
            }
            match (request.is_committed, is_flexible) {
                (true, _) => put_count(out, 0, is_flexible), // no aborted transactions
                (false, true) => out.push(0),
                (false, false) => out.extend((-1i32).to_be_bytes()),
            }
            if version >= 11 {
                out.extend((-1i32).to_be_bytes()); // preferred read replica
            }
            put_count(out, fetched.records_bytes, is_flexible);
            gaps.push((*place, out.len()));
            records_bytes += fetched.records_bytes;
            put_tags(out, is_flexible);
        }
        put_tags(out, is_flexible);
    }
    put_tags(out, is_flexible);
    end_response(out, start, records_bytes);
}

/// Group the places of partitions by topic, in the order in which the topics come first.
fn topics_of(request: &Fetch, shown: &[(usize, Fetched)]) -> Vec<(usize, Vec<usize>)> {
    let mut groups: Vec<(usize, Vec<usize>)> = Vec::new();
    for (place, (at, _)) in shown.iter().enumerate() {
        let topic = request.parts[*at].topic;
        match groups.iter_mut().find(|(known, _)| *known == topic) {
            Some((_, members)) => members.push(place),
            None => groups.push((topic, vec![place])),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn produce_frame(version: i16, records: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        frame.extend(PRODUCE.to_be_bytes());
        frame.extend(version.to_be_bytes());
        frame.extend(7i32.to_be_bytes());
        frame.extend(2i16.to_be_bytes());
        frame.extend(b"id");
        frame.extend([0, 0]); // header tags, no transactional id
        frame.extend(1i16.to_be_bytes());
        frame.extend(1000i32.to_be_bytes());
        frame.extend([2, 2, b't', 2]);
        frame.extend(3i32.to_be_bytes());
        put_uvarint(&mut frame, records.len() + 1);
        frame.extend(records);
        frame.extend([0, 0, 0]);
        frame
    }

    #[test]
    fn a_produce_request_with_one_partition_is_read() {
        let frame = produce_frame(9, b"0123456789");
        let header = read_header(&frame).unwrap();
        let request = read_produce(&frame, &header).unwrap();
        assert_eq!(request.acks, 1);
        assert_eq!(request.parts.len(), 1);
        assert_eq!(request.parts[0].index, 3);
        assert_eq!(&frame[request.parts[0].records.clone()], b"0123456789");
    }

    #[test]
    fn every_prefix_of_a_request_is_refused_without_a_panic() {
        let frame = produce_frame(9, b"0123456789");
        for end in 0..frame.len() {
            let cut = &frame[..end];
            if let Some(header) = read_header(cut) {
                assert!(read_produce(cut, &header).is_none(), "{end} bytes");
            }
        }
    }

    #[test]
    fn changed_bytes_never_cause_a_panic() {
        let frame = produce_frame(9, b"0123456789");
        let mut state = 1u64;
        for _ in 0..200_000 {
            let mut changed = frame.clone();
            for _ in 0..2 {
                state = state
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                let at = (state >> 33) as usize % changed.len();
                changed[at] = (state >> 20) as u8;
            }
            if let Some(header) = read_header(&changed) {
                let _ = read_produce(&changed, &header);
                let _ = read_fetch(&changed, &header);
            }
        }
    }

    #[test]
    fn partitions_of_alternating_topics_are_grouped_and_keep_their_records() {
        let part = |topic| FetchPart {
            topic,
            index: 0,
            leader_epoch: -1,
            offset: 0,
            max_bytes: 1,
        };
        let request = Fetch {
            topics: vec![TopicKey::Id([1; 16]), TopicKey::Id([2; 16])],
            parts: vec![part(0), part(1), part(0)],
            ..Fetch::default()
        };
        let header = Header {
            api_key: FETCH,
            version: 13,
            correlation_id: 7,
            body: 0,
        };
        let shown: Vec<_> = (0..3).map(|at| (at, Fetched::default())).collect();
        let (mut out, mut gaps) = (Vec::new(), Vec::new());
        write_fetched(&mut out, &mut gaps, &header, &request, b"", &shown);
        let places: Vec<_> = gaps.iter().map(|(place, _)| *place).collect();
        assert_eq!(places, [0, 2, 1]);
        assert!(gaps.is_sorted_by_key(|(_, gap)| *gap));
    }

    #[test]
    fn a_length_beyond_the_frame_is_refused() {
        let mut frame = produce_frame(9, b"");
        let header = read_header(&frame).unwrap();
        let at = frame.len() - 4;
        frame[at] = 0xff;
        frame.truncate(at + 1);
        frame.extend([0xff, 0xff, 0xff, 0x0f]);
        assert!(read_produce(&frame, &header).is_none());
    }
}
