"""Credentials of unknown users: of the form of real ones, and the same on all nodes."""

import os
from collections import Counter

from spindle.security.scram import ScramCredential, ScramMechanism
from spindle.security.secret import Secret
from spindle.security.server.fake_credentials import InventedCredentials, StoredCredentials

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
KAFKA_SALT = b"1q3d5e8mx0a9zk2w7c4v6b5n1p"


def stored(*forms: tuple[bytes, int]) -> dict[tuple[str, int], ScramCredential]:
    """Return a credential of SHA-256 for each salt and number of iterations."""
    return {
        (f"user-{number}", SHA_256): ScramCredential(
            salt, os.urandom(32), os.urandom(32), iterations
        )
        for number, (salt, iterations) in enumerate(forms)
    }


def forms(credentials: StoredCredentials, count: int = 400) -> Counter[tuple[int, int]]:
    """Return length of the salt and iterations of invented credentials, with their numbers."""
    node = InventedCredentials(SHA_256, lambda: credentials)
    invented = [node.credential(f"ghost-{number}") for number in range(count)]
    return Counter((len(credential.salt), credential.iterations) for credential in invented)


def test_invented_credentials_have_the_forms_of_real_ones_as_often_as_they_occur() -> None:
    real = stored((os.urandom(64), 8192), *[(os.urandom(32), 4096)] * 3)
    counter = forms({**real, ("other", SHA_512): ScramCredential(b"x", b"x", b"x", 5000)})
    assert counter.keys() == {(64, 8192), (32, 4096)}
    assert 60 < counter[64, 8192] < 140


def test_without_real_credentials_they_have_the_form_of_the_own_tools() -> None:
    assert forms({}) == {(32, 4096): 400}


def test_a_salt_of_kafkas_tools_is_a_number_with_base_36() -> None:
    node = InventedCredentials(SHA_256, lambda: real)
    real = stored((KAFKA_SALT, 4096))
    salts = [node.credential(f"ghost-{number}").salt for number in range(400)]
    assert all(salt.isalnum() and salt == salt.lower() for salt in salts)
    # 130 bits have at most 26 digits, of which the first is 1.
    assert {len(salt) for salt in salts} <= {23, 24, 25, 26}
    assert {salt[:1] for salt in salts if len(salt) == 26} == {b"1"}


def test_all_nodes_invent_the_same_salt_and_each_name_has_its_own() -> None:
    real = stored((os.urandom(32), 4096), (os.urandom(32), 4096))
    first, second = (InventedCredentials(SHA_256, lambda: real) for _ in range(2))
    assert first.credential("eve").salt == second.credential("eve").salt
    assert first.credential("eve").salt != first.credential("mallory").salt
    other = InventedCredentials(SHA_512, lambda: real)
    assert other.credential("eve").salt != first.credential("eve").salt


def test_a_shared_secret_keeps_the_salts_when_credentials_change() -> None:
    real = stored((os.urandom(32), 4096))
    node = InventedCredentials(SHA_256, lambda: real, Secret("of all nodes"))
    before = node.credential("eve").salt
    real = stored((os.urandom(32), 4096))
    assert node.credential("eve").salt == before
    without = InventedCredentials(SHA_256, lambda: real)
    assert without.credential("eve").salt != before


def test_with_many_credentials_a_further_one_rarely_changes_the_salts() -> None:
    real = stored(*[(os.urandom(32), 4096)] * 100)
    node = InventedCredentials(SHA_256, lambda: real)
    before = node.credential("eve").salt
    further = ScramCredential(os.urandom(32), b"\xff" * 32, b"\xff" * 32, 4096)
    real = {**real, ("further", SHA_256): further}
    assert node.credential("eve").salt == before
