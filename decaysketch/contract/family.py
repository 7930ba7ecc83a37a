"""The contract of a family: everything that a sketch kind provides to other code.

A *family* is a sketch kind with a name and its own byte in the wire format. It is one folder, which
ends in a :class:`Family`, and one line in :mod:`decaysketch.families`. Code that builds, merges,
moves or queries sketches (batch jobs, clients, Spark, an aggregator) reads the values here and
never checks the family name:

* ``input``: how rows are identified, and their columns: column mappings, ingest, SQL, clients
* ``options``: the parameters, one by one: HTTP models, command-line options, documents
* ``questions``: the queries that its sketches answer: requests, SQL functions, the dashboard
* ``promises``: the laws that its merge keeps, and so how its sketches may be delivered
* ``example``: a cheap sketch configuration: laws, golden files, hostile bytes

A :class:`Recipe` is common to all sketches in one stream: family,
parameters and, if the decay is fixed when a sketch is built, the decay. A
:class:`~decaysketch.contract.snapshot.Snapshot` is one sketch at one moment: immutable, safe to
read from any thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from decaysketch.core.codec.reading import Header, family_number
from decaysketch.core.params import BuildParams, Differences, Form, Option
from decaysketch.decay.integral import IntegralDecay, StepTable
from decaysketch.errors import CorruptSketchError, IncompatibleSketchError, ParameterError

if TYPE_CHECKING:
    from decaysketch.contract.many import ManyKeys
    from decaysketch.contract.sketch import Sketch
    from decaysketch.contract.snapshot import Snapshot

__all__ = [
    "FAMILIES",
    "Blob",
    "Families",
    "Family",
    "Head",
    "Input",
    "Joining",
    "Own",
    "Promises",
    "Recipe",
    "SeededRecipe",
    "family_of",
    "refuse_decay",
    "take_fields",
]

Blob = bytes | bytearray | memoryview


class Families(MutableMapping[str, "Family"]):
    """Families by name, in declaration order.

    A family is imported when a program first needs it. Most programs use one family, and the import
    of all takes a tenth of a second and 3 MB.
    """

    def __init__(self) -> None:
        self._places: dict[str, tuple[int, str, str]] = {}
        self._loaded: dict[str, Family] = {}

    def declare(self, name: str, number: int, module: str, variable: str = "FAMILY") -> None:
        """Add a family that a module defines under a variable's name, without its import.

        Args:
            name, number: of the family, as in its :class:`Family`.
            module, variable: where it is defined.
        """
        self._places[name] = number, module, variable

    def __getitem__(self, name: str) -> Family:
        found = self._loaded.get(name)
        if found is None:
            _, module, variable = self._places[name]
            found = self._loaded[name] = getattr(import_module(module), variable)
        return found

    def __setitem__(self, name: str, family: Family) -> None:
        self._places[name] = family.number, "", ""
        self._loaded[name] = family

    def __delitem__(self, name: str) -> None:
        del self._places[name]
        self._loaded.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    @property
    def loaded(self) -> list[Family]:
        """The families that are imported, in order."""
        return [self._loaded[name] for name in self._places if name in self._loaded]

    def loaded_first(self) -> Iterator[Family]:
        """Yield the imported families, then import the others one by one."""
        there = self.loaded
        yield from there
        yield from (family for family in self.values() if family not in there)

    def name_of(self, number: int) -> str | None:
        """Return the name of the family with a number on the wire. None: there is none."""
        return next((name for name, place in self._places.items() if place[0] == number), None)

    def numbered(self) -> str:
        """Return numbers and names for error messages."""
        return ", ".join(f"{place[0]} ({name})" for name, place in self._places.items())


#: Every family, by name; :mod:`decaysketch.families` lists them.
FAMILIES = Families()


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """The rows that a family's sketches accept.

    Attributes:
        named_by: "ids", which the columns that identify an observation are hashed to, by parameters
            that are or derive from ``SketchParams``; "sequence", the number that a source gave it;
            or "key": rows are events of a key (an integer, a text, bytes, or a tuple of these), and
            nothing names a single event, so a repeated row counts again. Only the delivery of a
            state is idempotent.
        joined: whether rows with one name are one observation, represented by the latest row.
            Otherwise every row counts as it is.
        series: whether ids name the series that rows are of, and not the rows. A row is then known
            by its series and its time.
        value: whether a row without a value is an observation all the same; "none": rows have none.
        value_bound: the parameter that values, integers from 0, do not exceed, and a row of value 0
            is no observation; None: values are numbers of the stream's ``value_type``.
        ranges: whether a value may be a range (:mod:`decaysketch.core.ranges`).
        weight_bound: the parameter that weights do not exceed; None: rows have no weight, but where
            they are weighted.
        weighted: whether rows may have a weight, an integer from 1, that no parameter bounds.
        sited: whether rows are counted for a site: ``update(..., source=, epoch=)``. All rows of
            one site and epoch are counted by one builder; parts of it, counted apart, conflict or
            replace each other.
        clock: whether a sketch receives times and discards rows by them.
        decay: whether a query chooses the decay, or it is fixed when a sketch is built.
        age_bound: the parameter that the ages which a chosen decay gives weight to do not exceed,
            where it is set; None: they may be any.
    """

    named_by: Literal["ids", "sequence", "key"]
    joined: bool = True
    series: bool = False
    value: Literal["optional", "required", "none"]
    value_bound: str | None = None
    ranges: bool = False
    weight_bound: str | None = None
    weighted: bool = False
    sited: bool = False
    clock: bool
    decay: Literal["query", "fixed"]
    age_bound: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """The laws that a family's merge keeps, for any order, repetition and tree.

    Attributes:
        idempotent: merging the same data again changes nothing. Without it a sketch must be
            delivered exactly once, which this project does not promise.
        canonical: equal sets of observations give equal bytes.
        lossless: a merge contains everything that a single sketch of all would contain.
        conflicts: two sketches in one stream may contradict each other, so that merging raises a
            ``ConflictingSketchError``, or exceeds the capacity, and changes nothing. Code that
            promises to keep a sketch must try the merge before.
    """

    idempotent: bool
    canonical: bool
    lossless: bool
    conflicts: bool = False


@dataclass(frozen=True, slots=True)
class Head:
    """The facts about a sketch that a reader has before it decodes a row: its cost.

    Attributes:
        family: name of the sketch kind.
        capacity: rows kept for each level.
        rows: for each repetition, in order.
        beside: memory in addition to its rows, in rows.
    """

    family: str
    capacity: int
    rows: tuple[int, ...]
    beside: int = 0

    @classmethod
    def of(cls, family: str, header: Header) -> Self:
        """Return the head of bytes in the format of :mod:`decaysketch.core.codec`."""
        return cls(family, header.capacity, tuple(copy.rows for copy in header.copies))

    @property
    def total(self) -> int:
        """Rows in all repetitions together."""
        return sum(self.rows)

    @property
    def cost(self) -> int:
        """Memory cost, in rows."""
        return self.total + self.beside


@dataclass(frozen=True, slots=True)
class Joining:
    """How sketches of several sources make a joint sample; see :mod:`decaysketch.sources.joint`.

    Attributes:
        matches: of snapshots, the rows of all sources by message, for each hash function.
        joint: the joint sample of such rows, of guards and of the number of the hash function.
        by_level: each row has one own level per source, by its time: then pairs and unions are read
            at these levels, and not from joint samples alone.
    """

    matches: Callable[[Any], Any]
    joint: Callable[[Any, Any, int], Any]
    by_level: bool = True

    @classmethod
    def of(cls, module: str, *, by_level: bool = True) -> Self:
        """Return ``matches`` and ``joint_of`` in a module. The first call imports it: few programs
        need set algebra.
        """
        return cls(
            lambda snapshots: import_module(module).matches(snapshots),
            lambda match, guards, copy: import_module(module).joint_of(match, guards, copy),
            by_level,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A kind of sketch; see the module.

    Attributes:
        name: in JSON.
        doc: the purpose of its sketches, the rest of a sentence that begins with their class.
        number: its byte on the wire.
        sketch: class of the sketches.
        params: class of their parameters, whose ``from_dict`` reads what ``to_dict`` gives.
        recipe: class of the recipes.
        peek: head of a sketch, from its bytes.
        input, options, questions, promises: see the module.
        make_example: makes ``example`` on first use, because choosing a prime needs a library.
        documented: a stream of use, in JSON and without the family's name, for documents.
        row_cost: memory of a stored row, in rows of the query-time sketch.
        release_scratch: gives back the working memory of the calling thread.
        many: handles sketches of many keys together, of parameters with which it can; of others it
            gives None. None: there is an object for each key.
        joining: joint samples of several sources. None: the family has none.
    """

    name: str
    doc: str
    number: int
    sketch: type[Sketch]
    params: type[BuildParams]
    recipe: type[Recipe]
    peek: Callable[[Blob], Head]
    input: Input
    options: tuple[Option, ...]
    questions: frozenset[str]
    promises: Promises
    make_example: Callable[[], Recipe]
    documented: Form
    row_cost: int = 1
    release_scratch: Callable[[], None] = lambda: None
    many: Callable[[Any], ManyKeys | None] | None = None  # of parameters of the class ``params``
    joining: Joining | None = None

    @property
    def example(self) -> Recipe:
        """A cheap sketch configuration."""
        return self.make_example()

    def check_deliverable(self, where: str) -> None:
        """Reject the family if a sketch may be merged into a sketch that already contains it. Code
        that delivers at least once, runs a task again or merges overlapping parts relies on this
        promise.

        Args:
            where: the caller, for the error.

        Raises:
            ParameterError: its merge is not idempotent.
        """
        if not self.promises.idempotent:
            raise ParameterError(
                f"family {self.name!r} has no idempotent merge, and {where} may merge a sketch "
                "again: its observations would count twice"
            )


def family_of(blob: Blob) -> str:
    """Return the family name in the bytes. O(1): nothing else in them is checked.

    Raises:
        CorruptSketchError: the bytes have no family in this release.
        TypeError: not bytes at all.
    """
    number = family_number(blob)
    name = FAMILIES.name_of(number)
    if name is None:
        raise CorruptSketchError(f"family {number}; expected one of {FAMILIES.numbered()}")
    return name


Own = Any
"""Parameters, or a sketch, of the family's own class, which the contract cannot name."""


class Recipe(ABC):
    """The sketch configuration of a stream. :func:`decaysketch.families.recipe_of` makes one.

    An immutable value. It can be pickled.

    Attributes:
        family: name of the sketch kind, a key in :data:`decaysketch.families.FAMILIES`.
        sketch_type: class of the sketches.
        params_type: class of their parameters.
        params: their parameters.
        decay: of every query, if it is fixed.
    """

    family: ClassVar[str]
    sketch_type: ClassVar[type[Any]]  # called with arguments of its own
    params_type: ClassVar[type[BuildParams]]

    params: BuildParams
    decay: IntegralDecay | None = None

    @property
    def kind(self) -> Family:
        """The :class:`Family`."""
        return FAMILIES[self.family]

    def steps(self) -> StepTable | None:
        """The computed form of a fixed decay, computed once because it may take long. None if the
        query chooses the decay.
        """
        return None

    def empty(self, now: int | None = None) -> Sketch:
        """Return an empty sketch, with its clock at ``now`` if given. The sketch does not check
        times.

        Raises:
            ParameterError: the parameters do not suit the family, or ``now`` is no time or given to
                a sketch without a clock.
        """
        sketch: Sketch = self._new()
        sketch.looks_at_times = False
        if now is None:
            return sketch
        if not self.kind.input.clock:
            name = self.sketch_type.__name__
            article = "an" if name[0] in "AEIO" else "a"
            raise ParameterError(f"now is {now!r}; expected None: {article} {name} has no clock")
        clocked: Any = sketch
        clocked.advance(now)
        return sketch

    def _new(self) -> Any:
        return self.sketch_type(self.params)

    def decode(self, blob: Blob) -> Sketch:
        """Read a sketch from this stream. Nothing in the bytes is trusted.

        Raises:
            CorruptSketchError: bytes that no honest builder could have written.
            IncompatibleSketchError: a sketch from another stream, or another family.
        """
        self._check_family(blob)
        sketch = self.read(blob, params=self.params, decay=self.decay, id_key=None)
        sketch.looks_at_times = False
        return sketch

    def decode_snapshot(self, blob: Blob) -> Snapshot:
        """Read a sketch from this stream for merging or queries, not for updates. Equals
        ``decode(blob).snapshot()``. Some families do so without a second copy of the rows.

        Raises:
            CorruptSketchError, IncompatibleSketchError: as :meth:`decode`.
        """
        return self.decode(blob).snapshot()

    def peek(self, blob: Blob) -> Head:
        """Return the row count that a sketch from this stream reports. See
        :func:`decaysketch.families.peek`.

        Raises:
            CorruptSketchError: bytes that no honest builder could have written.
            IncompatibleSketchError: a sketch in another family.
        """
        self._check_family(blob)
        return self.kind.peek(blob)

    def _check_family(self, blob: Blob) -> None:
        found = family_of(blob)
        if found != self.family:
            raise IncompatibleSketchError({"family": (self.family, found)})

    @classmethod
    @abstractmethod
    def read(
        cls, blob: Blob, *, params: Own | None, decay: IntegralDecay | None, id_key: bytes | None
    ) -> Sketch:
        """Read a sketch in this family. See :func:`decaysketch.families.decode`."""

    def join(self, snapshots: Iterable[Snapshot]) -> Snapshot:
        """Return a sketch with everything that any of them saw, at their smallest capacity."""
        merged: Sketch = self.empty()
        for each in snapshots:  # one after the other: each may be as large as its sketch once more
            merged.merge(each)
        return merged.snapshot()

    @classmethod
    @abstractmethod
    def parse(cls, form: Form, *, id_key: bytes | None, table: IntegralDecay | None) -> Self:
        """Read a sketch configuration for this family from its JSON form. See
        :func:`decaysketch.families.recipe_from_dict`.
        """

    @classmethod
    def of(cls, sketch: Own) -> Self:
        """Return the sketch configuration of a sketch in this family."""
        return cls(sketch.params)  # type: ignore[call-arg]  # a dataclass of the parameters alone

    @classmethod
    def built_with(cls, params: object, decay: IntegralDecay | None) -> Self | None:
        """Return the sketch configuration for parameters, and for a decay if one is fixed. Return
        None if they belong to another family.
        """
        if type(params) is not cls.params_type or decay is not None:
            return None
        return cls(params)  # type: ignore[call-arg]  # a dataclass of the parameters alone

    @classmethod
    def normal_form(cls, form: Form, *, id_key: bytes | None, read_decay: bool) -> dict[str, Any]:
        """See :func:`decaysketch.families.normal_form`."""
        return cls.parse(form, id_key=id_key, table=None).to_dict()

    def differences(self, other: Recipe) -> Differences:
        """Return every difference that prevents a merge, as ``{name: (ours, theirs)}``."""
        if self.family != other.family:
            return {"family": (self.family, other.family)}
        return self.params.differences(other.params)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form, without secrets and tables. See
        :func:`decaysketch.families.recipe_from_dict`.
        """
        return {"family": self.family, "params": self.params.to_dict()}


class SeededRecipe(Recipe):
    """For sketches with a clock, a decay chosen by the query, and hashes that follow from the seed:
    no secret keys them.
    """

    #: The hashed input and the hash, for the error about a secret.
    hashed: ClassVar[str]

    @classmethod
    def read(
        cls, blob: Blob, *, params: Own | None, decay: IntegralDecay | None, id_key: bytes | None
    ) -> Any:
        refuse_decay(decay)
        if id_key is not None:
            raise IncompatibleSketchError({"id_key": ("given", f"none, {cls.hashed} by the seed")})
        return cls.sketch_type.from_bytes(blob, params=params)

    @classmethod
    def parse(cls, form: Form, *, id_key: bytes | None, table: IntegralDecay | None) -> Self:
        take_fields(form, "params")
        if id_key is not None:
            raise ParameterError(f"id_key is given; family {cls.family!r} is keyed by its seed")
        return cls(cls.params_of(form["params"]))  # type: ignore[call-arg]  # as in ``of``

    @classmethod
    @abstractmethod
    def params_of(cls, fields: Form) -> Own:
        """Return the family's parameters from their JSON form."""


def refuse_decay(decay: IntegralDecay | None) -> None:
    """Reject a decay, for families whose decay is chosen at query time."""
    if decay is not None:
        raise IncompatibleSketchError({"decay": (decay, "none, it is chosen at query time")})


def take_fields(form: Form, *names: str) -> None:
    """Reject a JSON form that does not have exactly these fields, each an object. A decay may also
    be a text.
    """
    if unknown := sorted(form.keys() - {"family", *names}):
        raise ParameterError(f"unknown field {unknown[0]!r}; known are {sorted(names)}")
    for name in names:
        if not isinstance(form.get(name), (Mapping, str) if name == "decay" else Mapping):
            raise ParameterError(f"{name} is {form.get(name)!r}; expected an object of fields")
