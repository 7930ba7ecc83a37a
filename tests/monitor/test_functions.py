"""Functions behind one exchange: hubs that are killed, requests and responses that are lost."""

from __future__ import annotations

import json
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from monitor.functions import DEPTH, SHAPE, SIZE, WIDTH, cells_of, moves

import decaysketch as ds
from decaysketch.ecm import ECMParams, ECMSketch
from decaysketch.errors import ParameterError
from decaysketch.monitor.function_messages import form_of, from_site, to_site
from decaysketch.monitor.functions import FunctionHub, FunctionSource, FunctionSpec
from decaysketch.monitor.rounds import Answer, Collect, Offer, Poll, Report, Start
from decaysketch.monitor.safe import SelfJoinZone

SITES = tuple(f"s{number}" for number in range(4))
THETA = 0.3


class Leaf:
    """Exact counters, in place of a sketch's layer."""

    layer = SimpleNamespace(depth=DEPTH, width=WIDTH)

    def __init__(self) -> None:
        self.value = np.zeros((DEPTH, WIDTH))

    def columns(self, keys: np.ndarray) -> np.ndarray:
        cells = np.array([cells_of(int(key)) for key in keys], np.int64).reshape(-1, DEPTH)
        columns: np.ndarray = (cells % WIDTH).T
        return columns


class Service:
    """Sources that poll a hub, which stores its state as text before it responds.

    A request may be lost, and so may a response. With every exchange the hub may be another process
    that reads the stored state. A source's process may start without memory.
    """

    def __init__(self, spec: FunctionSpec, seed: int, loss: float) -> None:
        self.spec, self.loss, self.now = spec, loss, 0.0
        self.random = random.Random(seed)
        self.stored: str | None = None
        self.counts = [0] * 40
        self.leaves = {name: Leaf() for name in spec.sites}
        self.sources = {name: self._source(name, 0) for name in spec.sites}

    def _source(self, name: str, inc: int) -> FunctionSource:
        return FunctionSource(self.spec, self.leaves[name], name, inc)

    @property
    def hub(self) -> FunctionHub:
        saved = None if self.stored is None else json.loads(self.stored)
        return FunctionHub(self.spec, DEPTH, WIDTH, 5, saved)

    def add(self, name: str, key: int, by: int) -> None:
        leaf = self.leaves[name]
        self.counts[key] += by
        for cell in cells_of(key):
            leaf.value[cell // WIDTH, cell % WIDTH] += by
        self.sources[name].look([SimpleNamespace(leaf=leaf)], [key] if by > 0 else [])

    def crash(self, name: str) -> None:
        self.sources[name] = self._source(name, self.sources[name].inc + 1)
        self.sources[name].look([SimpleNamespace(leaf=self.leaves[name])])

    def exchange(self, name: str) -> bool:
        """Return whether anything was said."""
        said = self.sources[name].due(self.now)
        if self.random.random() < self.loss:
            return bool(said)
        hub = self.hub
        answers, changed = hub.exchange(
            name, json.loads(json.dumps(said)), self.now, arrivals=len(said)
        )
        if changed:
            self.stored = json.dumps(hub.saved)
        if self.random.random() >= self.loss:
            self.sources[name].receive(json.loads(json.dumps(answers)), self.now)
        return bool(said or answers)

    def settle(self, most: int = 400) -> None:
        """Exchange until no source has anything to say."""
        for _ in range(most):
            self.now += 1.0
            said = [self.exchange(name) for name in self.spec.sites]
            if not any(said) and self.loss == 0.0:
                return


def _under_way(source: FunctionSource, hub: FunctionHub) -> bool:
    site, rounds = source._site, hub._rounds
    assert site is not None
    assert rounds is not None
    return site.epoch != rounds.epoch or site.phi > site.bound


@pytest.mark.parametrize(("seed", "loss"), [(0, 0.0), (1, 0.3)])
def test_self_joins_are_within_theta_while_certain(seed: int, loss: float) -> None:
    spec = FunctionSpec(kind="self_join", decay=ds.decay.none(), theta=THETA, sites=SITES)
    service = Service(spec, seed, loss)
    vouched = 0
    for at, (site, key, by, _) in enumerate(moves(seed, len(SITES), 250, 120)):
        service.add(SITES[site], key, by)
        if at % 60 == 59:
            service.crash(SITES[at % 4])
        service.now += 0.5
        service.exchange(SITES[at % 4])
        state = service.hub.state(service.now)
        under_way = any(_under_way(source, service.hub) for source in service.sources.values())
        if state.certain and not under_way:
            vouched += 1
            truth = SelfJoinZone.of(np.sum([x.value for x in service.leaves.values()], 0)[None])
            assert state.value is not None
            assert abs(state.value - truth) <= THETA * truth * (1 + 1e-9)
        if at % 25 == 24:
            service.settle(30)
    assert vouched > 5


@pytest.mark.parametrize(("seed", "loss"), [(0, 0.0), (1, 0.3)])
def test_no_frequent_item_is_missed_and_none_is_false(seed: int, loss: float) -> None:
    threshold = 12.0
    spec = FunctionSpec(
        kind="frequent", decay=ds.decay.none(), theta=THETA, sites=SITES, threshold=threshold
    )
    service = Service(spec, seed, loss)
    for at, (site, key, by, _) in enumerate(moves(seed, len(SITES), 250, 120)):
        service.add(SITES[site], key, by)
        if at % 25 == 24:
            if at % 100 == 99 and loss:
                service.crash(SITES[at % 4])
            lossy, service.loss = service.loss, 0.0 if at % 50 == 49 else loss
            service.settle(60)
            if service.loss == 0.0:
                service.now += 10_000.0  # longer than any wait for an answer
                service.settle()
                _check_items(service, threshold)
            service.loss = lossy


def _check_items(service: Service, threshold: float) -> None:
    state = service.hub.state(service.now)
    assert state.certain
    assert state.frequent is not None
    for key, count in enumerate(service.counts):
        if key in state.frequent:
            local = (leaf.value.ravel()[cells_of(key)].min() for leaf in service.leaves.values())
            assert sum(local) >= threshold * (1 - THETA) - 1e-9
        else:
            assert count <= threshold * (1 + THETA) + 1e-9


def test_a_sketch_is_a_source() -> None:
    params = ECMParams(width=40, depth=3, slots=10, key_bits=16)
    decay = ds.decay.window(10_000)
    sketches = {name: ECMSketch(params, source=name) for name in SITES[:2]}
    specs = (
        FunctionSpec(kind="self_join", decay=decay, theta=0.2, sites=SITES[:2]),
        FunctionSpec(kind="inner_product", decay=decay, theta=0.2, sites=SITES[:2]),
        FunctionSpec(kind="frequent", decay=decay, theta=0.2, sites=SITES[:2], threshold=100.0),
    )
    keys = np.array([7] * 80 + list(range(40)), np.uint64)
    for sketch in sketches.values():
        sketch.update(keys, np.arange(len(keys)))
    grids = {name: sketch.grid(decay, now=200) for name, sketch in sketches.items()}
    for spec in specs:
        hub = FunctionHub(spec, 3, 40, 5)
        sources = [FunctionSource(spec, grids[name].leaf, name, 1) for name in spec.sites]
        matrices = 2 if spec.kind == "inner_product" else 1
        for source in sources:
            source.look([grids[source.name]] * matrices, keys)
        for now in range(8):
            for source in sources:
                answers, _ = hub.exchange(
                    source.name, source.due(float(now)), float(now), arrivals=9
                )
                source.receive(answers, float(now))
        state = hub.state(8.0)
        assert state.certain
        assert not state.costly
        if spec.kind == "frequent":
            assert state.frequent == (7,)
        else:
            counters = np.sum([grid.leaf.value for grid in grids.values()], axis=0)[None]
            assert state.value == pytest.approx(SelfJoinZone.of(counters), rel=0.2)
        assert hub.waiting == []
    later = hub.state(8.0 + 61.0)
    assert later.silent == SITES[:2]
    assert not later.certain


def test_messages_are_json() -> None:
    estimate = np.arange(SIZE, dtype=np.float64).reshape(SHAPE)
    for said in (
        Report("a", 1, 2, -1, -0.5, 0.25, True),
        Offer("a", 1, 2, 3, False, (0, 4), (1.0, 2.5)),
    ):
        assert from_site(json.loads(json.dumps(form_of(said)))) == said
    for told in (Answer(1, 2, 3, 0.5), Poll(3), Collect(4, whole=True)):
        assert to_site(json.loads(json.dumps(form_of(told)))) == told
    found = to_site(json.loads(json.dumps(form_of(Start(1, 3, estimate, 0.5)))), SHAPE)
    assert isinstance(found, Start)
    assert (found.estimate == estimate).all()


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ([], "the message"),
        ({}, "kind"),
        ({"kind": "start"}, "kind"),
        ({"kind": "report"}, "is missing"),
        ({"kind": "offer", "site": "a", "inc": 0, "seq": 0, "epoch": 0, "whole": True,
          "cells": [1], "values": []}, "values has 0 entries; expected 1"),
        ({"kind": "report", "site": "a", "inc": -1, "seq": 0, "epoch": 0, "phi": 0, "bound": 0,
          "polled": False}, "inc is -1"),
        ({"kind": "report", "site": "a", "inc": 0, "seq": 0, "epoch": 0, "phi": "1", "bound": 0,
          "polled": False}, "phi is"),
        ({"kind": "item-report", "site": "s0", "inc": 0, "seq": 0, "item": "x", "estimate": 1,
          "side": "below", "bound": 1, "polled": False}, "none of a function of kind"),
    ],
)  # fmt: skip
def test_strange_messages_are_rejected(form: Any, message: str) -> None:
    spec = FunctionSpec(kind="self_join", decay=ds.decay.none(), theta=0.1, sites=SITES)
    hub = FunctionHub(spec, DEPTH, WIDTH, 5)
    before = json.dumps(hub.saved)
    with pytest.raises(ParameterError, match=message):
        hub.exchange("s0", [form], 0.0)
    assert json.dumps(hub.saved) == before


def test_a_definition_says_what_it_needs() -> None:
    spec = FunctionSpec.from_dict(
        {"kind": "frequent", "decay": "window(1h)", "theta": 0.1, "sites": ["b", "a"],
         "threshold": 50}, time_unit="s",
    )  # fmt: skip
    assert spec.sites == ("a", "b")
    assert FunctionSpec.from_dict(spec.to_dict()) == spec
    good = {"kind": "self_join", "decay": "none", "theta": 0.1, "sites": ["a"]}
    for change, message in (
        ({"kind": "sum"}, "kind is 'sum'; expected one of self_join"),
        ({"theta": 1.5}, "theta"),
        ({"sites": []}, "sites has 0 entries"),
        ({"sites": ["a", "a"]}, "sites has 2 entries; expected one or more, each once"),
        ({"threshold": 5}, "threshold is 5 for the kind self_join"),
        ({"kind": "frequent"}, "threshold is None"),
        ({"decay": 7}, "decay is '7'"),
        ({"lease_s": 1}, "lease_s"),
        ({"more": 1}, "unknown field"),
    ):
        with pytest.raises(ParameterError, match=message):
            FunctionSpec.from_dict(good | change)
    wide = FunctionSpec(kind="self_join", decay=ds.decay.none(), theta=0.1, sites=SITES)
    with pytest.raises(ParameterError, match="expected at most 262144 in all"):
        wide.shape(16, 60_000)
