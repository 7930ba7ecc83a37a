"""Rounds on budgets: right at every step, and right over networks that are not."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from monitor.functions import DEPTH, SHAPE, SIZE, WIDTH, Faults, cells_of, moves

from decaysketch.errors import ParameterError
from decaysketch.monitor.charges import Charges
from decaysketch.monitor.rounds import Offer, Report, RoundHub
from decaysketch.monitor.safe import InnerProductZone, SelfJoinZone
from quality.monitor.protocols import Budgets

THETA = 0.2


@pytest.mark.parametrize(("seed", "sites"), [(0, 1), (1, 3), (2, 8)])
def test_self_join_is_within_theta_at_every_step(seed: int, sites: int) -> None:
    protocol = Budgets(sites, partial(SelfJoinZone, theta=THETA), SHAPE)
    total = np.zeros(SIZE)
    begun = False
    for site, key, by, counts in moves(seed, sites, 1_200, 400):
        for cell in cells_of(key):
            protocol.add(site, cell, by)
            total[cell] += by
        if counts and not begun:
            begun = True
            protocol.begin()
        if not begun:
            continue
        protocol.settle(site)
        f = SelfJoinZone.of(total.reshape(SHAPE))
        state = protocol.hub.state(0.0)
        assert state.certain
        assert state.value == pytest.approx(sites**2 * protocol.value)
        assert abs(state.value - f) <= THETA * f * (1 + 1e-9)
        assert state.low <= f * (1 + 1e-9)
        assert f <= state.high * (1 + 1e-9)
        assert protocol.hub.charges.total <= 1e-9


def test_inner_product_is_within_theta_at_every_step() -> None:
    sites, shape = 4, (2, DEPTH, WIDTH)
    protocol = Budgets(sites, partial(InnerProductZone, theta=THETA), shape)
    total = np.zeros(2 * SIZE)
    begun = False
    for site, key, by, counts in moves(5, sites, 1_000, 400):
        for cell in cells_of(key // 2):  # of one stream even keys, of the other odd ones
            protocol.add(site, key % 2 * SIZE + cell, by)
            total[key % 2 * SIZE + cell] += by
        if counts and not begun:
            begun = True
            protocol.begin()
        if begun:
            protocol.settle(site)
            f = InnerProductZone.of(total.reshape(shape)) / sites**2
            assert abs(protocol.value - f) <= THETA * f * (1 + 1e-9)
    assert protocol.hub.rounds > 1


@pytest.mark.parametrize(
    ("seed", "loss", "copies"), [(0, 0.0, 0.0), (1, 0.2, 0.2), (2, 0.5, 0.5), (3, 0.3, 0.5)]
)
def test_what_is_vouched_for_is_right_over_any_network(
    seed: int, loss: float, copies: float
) -> None:
    network = Faults(seed, 4, loss=loss, copies=copies, delay_s=0.2)
    vouched = 0

    def check() -> None:
        nonlocal vouched
        state = network.hub.state(network.now)
        hub = network.hub
        for name, site in network.sites.items():
            if hub.phase != "collecting" and site.epoch == hub.epoch:
                assert site.bound <= hub.charges.charge(name) + 1e-9
        if state.certain and state.value is not None and not network.under_way():
            vouched += 1
            assert abs(state.value - network.truth) <= 0.3 * network.truth * (1 + 1e-9)

    for at, (site, key, by, _) in enumerate(moves(seed, 4, 300, 150)):
        for cell in cells_of(key):
            network.sites[f"s{site}"].add(cell, by)
        if at % 10 == 9:
            network.run(network.now + 0.5, check)
        if at % 150 == 75:
            network.crash(f"s{at % 4}")
    network.run(network.now + 40.0, check)
    assert vouched > 50
    assert network.hub.state(network.now).certain


def test_a_site_that_fell_silent_is_named_after_its_lease() -> None:
    network = Faults(7, 3, loss=0.0, copies=0.0, delay_s=0.01, lease_s=5.0)
    for name in network.names:
        network.sites[name].become(np.full(SIZE, 50.0))
    network.run(4.0)
    assert network.hub.state(network.now).certain
    network.sites.pop("s1")
    network._send = lambda to, message: (  # type: ignore[method-assign]
        None if to == "s1" else Faults._send(network, to, message)
    )
    network.run(12.0)
    state = network.hub.state(network.now)
    assert not state.certain
    assert state.silent == ("s1",)


def test_an_old_copy_changes_nothing() -> None:
    hub = RoundHub(["a"], partial(SelfJoinZone, theta=0.2), SHAPE)
    hub.receive(Report("a", 0, 1, -1, 0.0, 0.0, False), 0.0)
    hub.receive(Offer("a", 0, 2, 0, True, tuple(range(SIZE)), (5.0,) * SIZE), 0.0)
    rest = hub.zone.rest if hub.zone else 0.0
    hub.receive(Report("a", 0, 4, 0, rest / 3, rest / 2, False), 0.0)
    charge = hub.charges.charge("a")
    assert charge >= rest / 3
    assert hub.receive(Report("a", 0, 3, 0, 5.0, 5.0, True), 0.0) == []
    assert hub.charges.charge("a") == charge


@pytest.mark.parametrize(
    "message",
    [
        Report("x", 0, 1, -1, 0.0, 0.0, False),
        Report("a", 0, 1, 0, float("nan"), 0.0, False),
        Offer("a", 0, 1, 0, True, (SIZE,), (1.0,)),
        Offer("a", 0, 1, 0, True, (0,), (-1.0,)),
        Offer("a", 0, 1, 0, True, (0, 1), (1.0,)),
    ],
)
def test_what_no_site_would_say_is_refused(message: Report | Offer) -> None:
    hub = RoundHub(["a"], partial(SelfJoinZone, theta=0.2), SHAPE)
    with pytest.raises(ParameterError):
        hub.receive(message, 0.0)


def test_charges_stay_within_the_limit() -> None:
    charges = Charges("abc", 10.0)
    charges.restart(10.0, 1.0)
    charges.share_out()
    assert charges.total <= 10.0
    for seq in range(1, 30):
        site = "abc"[seq % 3]
        bound = charges.charge(site)
        assert charges.take(site, seq, bound + 0.01 * charges.reserve, bound)
        charges.give(site)
        assert charges.total <= 10.0
        assert not charges.take(site, seq, 0.0, 0.0)
