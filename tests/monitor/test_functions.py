"""Functions behind one exchange: hubs that are killed, requests and responses that are lost."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from monitor.functions import DEPTH, SHAPE, SIZE, WIDTH

import decaysketch as ds
from decaysketch.ecm import ECMCollection, ECMParams, ECMSketch
from decaysketch.errors import ParameterError
from decaysketch.monitor.function_costs import Costs
from decaysketch.monitor.function_messages import form_of, from_site, to_site
from decaysketch.monitor.functions import (
    FunctionHub,
    FunctionSource,
    FunctionSpec,
    FunctionState,
    read_posts,
)
from decaysketch.monitor.rounds import Answer, Collect, Offer, Poll, Report, Start
from decaysketch.monitor.safe import SelfJoinZone
from quality.monitor.function_network import KINDS, PLANTED, run

SITES = tuple(f"s{number}" for number in range(4))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, 1, 7])
def test_promises_are_kept(kind: str, seed: int) -> None:
    """The study runs 10,000 seeds: ``python -m quality.monitor function-faults``."""
    found = run(kind, seed)
    assert found.breaches == ()
    assert found.vouched > 0


@pytest.mark.parametrize(
    ("planted", "kind", "seed"),
    [
        ("respond before storing", "inner_product", 6),
        ("reuse an epoch", "frequent", 23),
        ("exchange before posting", "self_join", 7),
        ("forget a charge", "frequent", 109),
    ],
)
def test_a_planted_mistake_is_found(planted: str, kind: str, seed: int) -> None:
    assert planted in PLANTED
    assert any(run(kind, each, planted).breaches for each in range(seed, seed + 5))


def test_sources_post_where_messages_cost_more() -> None:
    costs = Costs(fewest=10)
    assert not costs.add(10, 3, can_post=True)
    assert costs.add(1, 3, can_post=True)
    assert costs.posts
    for pause in (100, 200, 400):
        assert not costs.add(pause - 1, pause - 1, can_post=True)
        assert costs.add(1, 1, can_post=True), pause
        assert not costs.posts
        assert costs.add(11, 2, can_post=True)
    costs = Costs(**costs.saved())
    assert costs.add(0, 800, can_post=True)
    assert not costs.add(40, 100, can_post=True)  # the trial succeeds
    assert (costs.pauses, costs.messages, costs.arrivals) == (0, 20, 50)
    assert not costs.add(300, 100, can_post=False)
    assert costs.costly


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
        posted = _posted(state, spec, sketches, now=200)
        if spec.kind == "frequent":
            assert posted.frequent == (7,)
        else:
            assert posted.value == pytest.approx(SelfJoinZone.of(counters))
            assert posted.low == posted.value == posted.high
    later = hub.state(8.0 + 61.0)
    assert later.silent == SITES[:2]
    assert not later.certain


def _posted(
    state: FunctionState, spec: FunctionSpec, sketches: dict[str, ECMSketch], now: int
) -> FunctionState:
    matrices = 2 if spec.kind == "inner_product" else 1
    collection = ECMCollection(next(iter(sketches.values())).params)
    collection.merge(*sketches.values())
    return read_posts(state, spec, [collection.snapshot()] * matrices, now)


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
        ({"webhook": "http://h"}, "threshold is None; expected one for a webhook"),
        ({"threshold": 5, "webhook": "ftp://h"}, "webhook is"),
        ({"other": "s"}, "other is 's' for the kind self_join"),
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
