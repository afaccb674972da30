//! A consumer's incremental fetch session (KIP-227), while the lane serves its connection.
//!
//! The lane takes requests that change fetch offsets. A request that adds or forgets partitions, or
//! names another session or epoch, goes up with the state of the session.

use super::wire::{Fetch, FetchPart, Fetched, TopicKey};

/// A partition of a session, and its offsets in the last response that had it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionPart {
    pub topic: usize,
    pub index: i32,
    pub leader_epoch: i32,
    pub offset: i64,
    pub max_bytes: i32,
    pub high_watermark: i64,
    pub log_start_offset: i64,
}

/// The session; its partitions are in the order in which they are served.
#[derive(Clone, Debug, Default)]
pub struct Session {
    pub id: i32,
    /// The epoch of the next request.
    pub epoch: i32,
    pub names: Vec<u8>,
    pub topics: Vec<TopicKey>,
    pub parts: Vec<SessionPart>,
}

impl Session {
    /// Return the place of a topic that was added by name or by id.
    pub fn add_topic(&mut self, key: &[u8], is_id: bool) -> Option<usize> {
        if let Some(known) = self.topic(key, is_id) {
            return Some(known);
        }
        let topic = if is_id {
            TopicKey::Id(key.try_into().ok()?)
        } else {
            let start = self.names.len();
            self.names.extend_from_slice(key);
            TopicKey::Name(start..self.names.len())
        };
        self.topics.push(topic);
        Some(self.topics.len() - 1)
    }

    fn topic(&self, key: &[u8], is_id: bool) -> Option<usize> {
        self.topics.iter().position(|topic| match topic {
            TopicKey::Id(id) => is_id && id == key,
            TopicKey::Name(range) => !is_id && &self.names[range.clone()] == key,
        })
    }

    /// Apply a request, and return it with all partitions of the session.
    ///
    /// None if it is not the next one of the session, or changes the set of partitions. Applying a
    /// request again has no further effect.
    pub fn apply(&mut self, frame: &[u8], request: &Fetch) -> Option<Fetch> {
        if (request.session_id, request.session_epoch) != (self.id, self.epoch) {
            return None;
        }
        for part in &request.parts {
            let topic = match &request.topics[part.topic] {
                TopicKey::Id(id) => self.topic(id, true),
                TopicKey::Name(range) => self.topic(&frame[range.clone()], false),
            }?;
            let is_it =
                |known: &&mut SessionPart| (known.topic, known.index) == (topic, part.index);
            let known = self.parts.iter_mut().find(is_it)?;
            known.leader_epoch = part.leader_epoch;
            known.offset = part.offset;
            known.max_bytes = part.max_bytes;
        }
        let part_of = |part: &SessionPart| FetchPart {
            topic: part.topic,
            index: part.index,
            leader_epoch: part.leader_epoch,
            offset: part.offset,
            max_bytes: part.max_bytes,
        };
        Some(Fetch {
            topics: self.topics.clone(),
            parts: self.parts.iter().map(part_of).collect(),
            ..request.clone()
        })
    }

    /// Return whether a response has to contain the partition at this place.
    pub fn is_news(&self, at: usize, fetched: &Fetched) -> bool {
        let part = &self.parts[at];
        fetched.records_bytes > 0
            || (fetched.high_watermark, fetched.log_start_offset)
                != (part.high_watermark, part.log_start_offset)
    }

    /// Record a response. Partitions with records are served after the others the next time.
    pub fn answered(&mut self, shown: &[(usize, Fetched)]) {
        self.epoch = if self.epoch == i32::MAX {
            1
        } else {
            self.epoch + 1
        };
        let mut served = vec![false; self.parts.len()];
        for (at, fetched) in shown {
            let part = &mut self.parts[*at];
            part.high_watermark = fetched.high_watermark;
            part.log_start_offset = fetched.log_start_offset;
            served[*at] = fetched.records_bytes > 0;
        }
        let (mut first, mut last) = (Vec::new(), Vec::new());
        for (part, was_served) in self.parts.drain(..).zip(served) {
            if was_served { &mut last } else { &mut first }.push(part);
        }
        first.append(&mut last);
        self.parts = first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        let mut session = Session {
            id: 9,
            epoch: 3,
            ..Session::default()
        };
        let topic = session.add_topic(b"t", false).unwrap();
        for index in 0..2 {
            session.parts.push(SessionPart {
                topic,
                index,
                leader_epoch: -1,
                offset: 10,
                max_bytes: 100,
                high_watermark: 10,
                log_start_offset: 0,
            });
        }
        session
    }

    fn request(epoch: i32, index: i32) -> Fetch {
        let part = FetchPart {
            topic: 0,
            index,
            leader_epoch: -1,
            offset: 12,
            max_bytes: 50,
        };
        Fetch {
            session_id: 9,
            session_epoch: epoch,
            topics: vec![TopicKey::Name(0..1)],
            parts: vec![part],
            ..Fetch::default()
        }
    }

    #[test]
    fn a_request_changes_the_partitions_that_it_names() {
        let mut session = session();
        let whole = session.apply(b"t", &request(3, 1)).unwrap();
        let offsets: Vec<_> = whole
            .parts
            .iter()
            .map(|part| (part.index, part.offset))
            .collect();
        assert_eq!(offsets, [(0, 10), (1, 12)]);
    }

    #[test]
    fn another_epoch_or_an_unknown_partition_is_refused() {
        assert!(session().apply(b"t", &request(4, 1)).is_none());
        assert!(session().apply(b"t", &request(3, 2)).is_none());
        assert!(session().apply(b"u", &request(3, 1)).is_none());
    }

    #[test]
    fn a_served_partition_comes_last_the_next_time() {
        let mut session = session();
        let fetched = Fetched {
            high_watermark: 12,
            records_bytes: 5,
            ..Fetched::default()
        };
        assert!(session.is_news(0, &fetched));
        session.answered(&[(0, fetched)]);
        assert_eq!(session.epoch, 4);
        assert_eq!(
            session
                .parts
                .iter()
                .map(|part| part.index)
                .collect::<Vec<_>>(),
            [1, 0]
        );
        let same = Fetched {
            high_watermark: 12,
            ..Fetched::default()
        };
        assert!(!session.is_news(1, &same));
    }
}
