"""A sensor network that delivers at least once: many copies, late, out of order, by several paths.

Steps of one message, in order, and their effects on the log:

1. A sensor averages ``weight`` readings (one every 30 s) into one ``value`` and numbers the
   message: its key is (source, msg). At night it skips every second report to save its battery. Now
   and then the probe is at fault: the value is null, the message is sent all the same. Towards the
   end some batteries run low, and ever more of their messages say 0.0.
2. Every gateway in reach may hear it, more likely the nearer it is: copies by several paths. Each
   gateway stamps ``event_us`` by ITS clock (offset and drift), so the copies disagree. A gateway
   that has lost its clock leaves ``event_us`` null.
3. If the acknowledgement is lost the sensor sends again after some seconds: the same message with
   later stamps.
4. A gateway uploads its messages. Some uploads are lost. Some are repeated because the broker's
   acknowledgement was lost.
5. A gateway whose uplink is down for hours stores its messages and uploads them afterwards. Every
   second such upload breaks off part-way and starts again from the beginning. That is the backfill
   that a watermark drops and a counter counts twice.

Everything derives from the plan and its seed: the same plan gives the same rows. (numpy's generator
keeps its stream for a given version; nothing here needs more than that.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

__all__ = ["MAX_WEIGHT", "Simulation", "SimulationPlan", "simulate"]

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]

SECOND_US: Final = 1_000_000
MINUTE_US: Final = 60 * SECOND_US
HOUR_US: Final = 60 * MINUTE_US
DAY_US: Final = 24 * HOUR_US

READING_US: Final = 30 * SECOND_US
PERIODS_MIN: Final = (5, 10, 15, 30)
PERIOD_SHARES: Final = (0.35, 0.35, 0.20, 0.10)
MAX_WEIGHT: Final = max(PERIODS_MIN) * MINUTE_US // READING_US  # 60 readings in half an hour


@dataclass(frozen=True)
class SimulationPlan:
    """The network and its faults. Shares are probabilities per event."""

    seed: int = 20_250_303
    sensors: int = 400
    gateways: int = 12
    days: float = 7.0
    start_us: int = 1_740_960_000 * SECOND_US  # Monday 3 March 2025, 00:00 UTC
    reach_km: float = 3.4  # distance at which every second message is heard; the area is 10 x 10 km
    null_value_share: float = 0.01
    low_battery_share: float = 0.06  # of the sensors
    null_event_share: float = 0.004
    unacknowledged_share: float = 0.06  # the sensor sends again
    lost_upload_share: float = 0.01
    repeated_upload_share: float = 0.03
    outages_per_gateway: float = 3.0
    clock_offset_s: float = 0.8  # standard deviation over gateways
    clock_drift_ppm: float = 15.0

    def __post_init__(self) -> None:
        if self.sensors < 1 or self.gateways < 1 or not self.days > 0:
            raise ValueError(
                "a simulation needs at least one sensor, one gateway and some time, "
                f"got sensors={self.sensors}, gateways={self.gateways}, days={self.days}"
            )


@dataclass(frozen=True)
class Simulation:
    """The delivery log in arrival order, and counts of the network's faults.

    Attributes:
        log: columns ``arrival_us, event_us, source, msg, path, value, weight``.
        sent: messages that sensors sent; not all of them reach the log.
        delivered: messages of which at least one copy reached the log.
        late_share: share of deliveries that arrived more than an hour after the message was sent.
    """

    log: pl.DataFrame
    sent: int
    delivered: int
    late_share: float


def simulate(
    plan: SimulationPlan, *, on_step: Callable[[int, int], None] = lambda done, total: None
) -> Simulation:
    """Run the network. ``on_step(done, total)`` is called after every gateway."""
    rng = np.random.default_rng(plan.seed)
    at_km = rng.uniform(0, 10, (plan.sensors, 2))
    messages = _messages(plan, rng, at_km)
    first_send = np.arange(messages.sent_us.size)
    again = np.flatnonzero(rng.random(messages.sent_us.size) < plan.unacknowledged_share)
    transmissions = np.concatenate([first_send, again])
    on_air_us = messages.sent_us[transmissions]
    on_air_us[first_send.size :] += (rng.uniform(4, 20, again.size) * SECOND_US).astype(np.int64)

    heard = _hearing(plan, rng, at_km)
    parts = []
    for gateway in range(plan.gateways):
        chance = heard[messages.sensor[transmissions], gateway]
        received = np.flatnonzero(rng.random(transmissions.size) < chance)
        parts.append(
            _uploads(plan, rng, gateway, messages, transmissions[received], on_air_us[received])
        )
        on_step(gateway + 1, plan.gateways)

    log = pl.concat(parts).sort("arrival_us", "path", "source", "msg", maintain_order=True)
    late = log.select((pl.col("arrival_us") - pl.col("sent_us") > HOUR_US).mean()).item()
    log = log.drop("sent_us")
    delivered = log.select(pl.struct("source", "msg").n_unique()).item()
    return Simulation(log, int(messages.sent_us.size), int(delivered), float(late or 0.0))


@dataclass(frozen=True)
class _Messages:
    sensor: Ints
    number: Ints
    sent_us: Ints
    weight: Ints
    value: Floats  # NaN: the probe was at fault


def _messages(plan: SimulationPlan, rng: np.random.Generator, at_km: Floats) -> _Messages:
    """Every message that a sensor sends, in no particular order."""
    span_us = int(plan.days * DAY_US)
    period_us = rng.choice(PERIODS_MIN, size=plan.sensors, p=PERIOD_SHARES) * MINUTE_US
    phase_us = (rng.random(plan.sensors) * period_us).astype(np.int64)
    first_number = rng.integers(0, 1_000_000, plan.sensors)

    per_sensor = np.maximum(0, -((phase_us - span_us) // period_us))
    sensor = np.repeat(np.arange(plan.sensors), per_sensor)
    step = np.arange(sensor.size) - np.repeat(np.cumsum(per_sensor) - per_sensor, per_sensor)
    since_us = phase_us[sensor] + step * period_us[sensor]

    hour = since_us / HOUR_US % 24
    asleep = ((hour < 6) | (hour >= 22)) & (step % 2 == 1)
    sensor, step, since_us = sensor[~asleep], step[~asleep], since_us[~asleep]
    since_us = since_us + (rng.normal(0, 3, since_us.size) * SECOND_US).astype(np.int64)
    since_us = np.clip(since_us, 0, span_us - 1)

    readings = period_us[sensor] // READING_US
    weight = np.maximum(1, rng.binomial(readings, 0.97))

    # A spring week: a daily cycle, sunny spots and shade, a cold front in the second half. It is
    # warmer in town, where most gateways hear a sensor, so a mean with duplicates is too warm.
    day = since_us / DAY_US
    from_town_km = np.hypot(*(at_km - 5.0).T)
    base = 14.0 + 6.0 * np.exp(-((from_town_km / 2.8) ** 2)) + rng.normal(0, 1.2, plan.sensors)
    swing = rng.uniform(3.0, 7.0, plan.sensors)
    front = -7.0 / (1.0 + np.exp(-(day - 0.62 * plan.days) * 8.0))
    value = (
        base[sensor]
        + swing[sensor] * np.sin(2 * math.pi * (day - 0.375))
        + front
        + rng.normal(0, 0.5, since_us.size)
    )
    value = np.round(value, 1)
    low = rng.random(plan.sensors) < plan.low_battery_share
    value[low[sensor] & (rng.random(value.size) < (day / plan.days) ** 4)] = 0.0
    value[rng.random(value.size) < plan.null_value_share] = np.nan
    return _Messages(sensor, first_number[sensor] + step, plan.start_us + since_us, weight, value)


def _hearing(plan: SimulationPlan, rng: np.random.Generator, at_km: Floats) -> Floats:
    """Chance that a gateway hears a sensor, [sensors, gateways]; gateways crowd in town."""
    turn = 2.4 * np.arange(plan.gateways)  # a sunflower: every direction, no two alike
    radius_km = 4.8 * np.sqrt((np.arange(plan.gateways) + 0.5) / plan.gateways)
    x = 5.0 + radius_km * np.cos(turn) + rng.normal(0, 0.3, plan.gateways)
    y = 5.0 + radius_km * np.sin(turn) + rng.normal(0, 0.3, plan.gateways)
    distance_km = np.hypot(at_km[:, :1] - x, at_km[:, 1:] - y)
    return np.asarray(0.98 / (1 + np.exp((distance_km - plan.reach_km) / 0.45)), dtype=np.float64)


def _uploads(
    plan: SimulationPlan,
    rng: np.random.Generator,
    gateway: int,
    messages: _Messages,
    message: Ints,
    received_us: Ints,
) -> pl.DataFrame:
    """Return the log rows that one gateway makes from its messages."""
    order = np.argsort(received_us, kind="stable")
    message, received_us = message[order], received_us[order]

    offset_us = rng.normal(0, plan.clock_offset_s) * SECOND_US
    drift = rng.normal(0, plan.clock_drift_ppm) * 1e-6
    clock_us = received_us + offset_us + drift * (received_us - plan.start_us)
    stamped_us = np.round(clock_us).astype(np.int64)
    no_clock = rng.random(message.size) < plan.null_event_share

    latency_us = np.exp(rng.normal(math.log(0.12), 0.6, message.size)) * SECOND_US
    arrival_us = received_us + latency_us.astype(np.int64)
    repeat = rng.random(message.size) < plan.repeated_upload_share
    wait_us = (rng.uniform(2, 90, message.size) * SECOND_US).astype(np.int64)

    copies = [np.arange(message.size), np.flatnonzero(repeat)]
    arrivals = [arrival_us, (arrival_us + wait_us)[repeat]]
    for start_us, end_us in _outages(plan, rng):
        backlog = np.flatnonzero((received_us >= start_us) & (received_us < end_us))
        if not backlog.size:
            continue
        pace_us = SECOND_US // 40  # the backlog goes out at 40 messages a second
        uploaded_us = end_us + np.arange(backlog.size) * pace_us
        if rng.random() < 0.5:  # breaks off, starts again from the beginning
            broken = int(backlog.size * rng.uniform(0.3, 0.9))
            copies.append(backlog[:broken])
            arrivals.append(uploaded_us[:broken])
            uploaded_us = uploaded_us + broken * pace_us + 30 * SECOND_US
        arrivals[0][backlog] = uploaded_us
        # A repeated upload of a held message follows its late first upload, not its reception.
        arrivals[1] = (arrivals[0] + wait_us)[repeat]

    copy = np.concatenate(copies)
    arrived_us = np.concatenate(arrivals)
    kept = rng.random(copy.size) >= plan.lost_upload_share
    copy, arrived_us = copy[kept], arrived_us[kept]
    chosen = message[copy]
    return pl.DataFrame(
        {
            "arrival_us": arrived_us,
            "event_us": pl.Series(stamped_us[copy]).set(pl.Series(no_clock[copy]), None),
            "source": (100_000 + messages.sensor[chosen]).astype(np.int32),
            "msg": messages.number[chosen].astype(np.int32),
            "path": np.full(copy.size, gateway, dtype=np.int32),
            "value": pl.Series(messages.value[chosen], nan_to_null=True),
            "weight": messages.weight[chosen].astype(np.int32),
            "sent_us": messages.sent_us[chosen],
        }
    )


def _outages(plan: SimulationPlan, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Times at which a gateway's uplink is down, disjoint, in order."""
    span_us = plan.days * DAY_US
    outages: list[tuple[int, int]] = []
    for start in np.sort(rng.uniform(0, span_us, rng.poisson(plan.outages_per_gateway))):
        start_us = plan.start_us + int(start)
        if outages and start_us < outages[-1][1]:
            continue
        outages.append((start_us, start_us + int(rng.uniform(1, 7) * HOUR_US)))
    return outages
