"""The bytes of answers that wait for their clients."""

from spindle.runtime.network.send_backlog import SendBacklog


class Sender:
    def __init__(self, unsent: SendBacklog) -> None:
        self.unsent = unsent
        self.bytes = 0
        self.is_ended = False
        self.takes = False

    def has(self, count: int) -> None:
        self.bytes = count
        self.count()

    def count(self) -> bool:
        self.unsent.note(self, self.bytes)
        return self.takes

    def end(self) -> None:
        self.is_ended = True


def test_all_bytes_are_counted_and_a_decrease_is_reported() -> None:
    unsent = SendBacklog(lambda: 0.0)
    told = []
    unsent.on_decrease = lambda: told.append(unsent.total_bytes)
    one, other = Sender(unsent), Sender(unsent)
    one.has(10)
    other.has(20)
    assert unsent.total_bytes == 30
    one.has(5)
    other.has(0)
    assert told == [25, 5]


def test_a_client_that_takes_nothing_is_ended_when_others_need_the_memory() -> None:
    now_s = 100.0
    unsent = SendBacklog(lambda: now_s)
    deaf, slow = Sender(unsent), Sender(unsent)
    deaf.has(10)
    slow.has(10)
    now_s += 9
    unsent.make_room()
    assert [deaf.is_ended, slow.is_ended] == [False, False]
    now_s += 1
    slow.takes = True
    unsent.make_room()
    assert [deaf.is_ended, slow.is_ended] == [True, False]
    assert unsent.total_bytes == 20
