"""Trees: taking apart and putting together, paths, prefixes and what they say when they do not fit, registered classes."""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import pickle
import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest

import meshjit as mj
from meshjit import tree, tree_util
from meshjit.tree_views import key_types, users_treedef
from meshjit.trees import WORDS


class Point(NamedTuple):
    x: Any
    y: Any


@functools.partial(tree.register_dataclass, data_fields=["weight", "bias"], meta_fields=["name"])
@dataclasses.dataclass
class Layer:
    weight: Any
    bias: Any
    name: str = "layer"


@tree.register_dataclass
@dataclasses.dataclass
class Marked:
    value: Any
    size: int = dataclasses.field(default=3, metadata={"static": True})
    cache: Any = dataclasses.field(default=None, init=False)


@tree.register_pytree_node_class
class Pair:
    def __init__(self, a: Any, b: Any, tag: str) -> None:
        self.a, self.b, self.tag = a, b, tag

    def tree_flatten(self) -> Any:
        return (self.a, self.b), self.tag

    @classmethod
    def tree_unflatten(cls, tag: str, children: Any) -> Pair:
        return cls(*children, tag)


@tree.register_pytree_with_keys_class
class Named:
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def tree_flatten_with_keys(self) -> Any:
        return ((tree.GetAttrKey("inner"), self.inner),), None

    @classmethod
    def tree_unflatten(cls, aux: None, children: Any) -> Named:
        return cls(*children)


@tree.register_static
@dataclasses.dataclass(frozen=True)
class Setting:
    rate: float


TREES = [
    1,
    None,
    (),
    [],
    {},
    (1,),
    [1, (2, None), {"b": 3, "a": [4]}],
    Point(1, [2, 3]),
    collections.OrderedDict([("b", 1), ("a", 2)]),
    collections.defaultdict(list, {"a": [1, 2]}),
    {"a": {"a": {"a": None}}},
    Layer(1, (2, 3), "first"),
    {"x": Setting(0.5), "y": Point(None, 7)},
]


@pytest.mark.parametrize("value", TREES, ids=str)
def test_flatten_and_unflatten_are_inverse(value: Any):
    flat, treedef = tree.flatten(value)
    again = tree.unflatten(treedef, flat)
    assert again == value and type(again) is type(value)
    assert tree.leaves(value) == flat and tree.structure(value) == treedef
    assert hash(treedef) == hash(tree.structure(again)) and treedef.num_leaves == len(flat)
    assert [leaf for _, leaf in tree.leaves_with_path(value)] == flat
    assert tree.map(lambda x: x, value) == value


def test_dict_keys_are_sorted_and_ordered_dicts_are_not():
    assert tree.leaves({"b": 1, "a": 2}) == [2, 1]
    assert tree.leaves(collections.OrderedDict([("b", 1), ("a", 2)])) == [1, 2]


def test_none_is_a_node_unless_is_leaf_says_otherwise():
    assert tree.leaves([None, 1]) == [1]
    assert tree.leaves([None, 1], is_leaf=lambda x: x is None) == [None, 1]
    assert tree.map(lambda x: x + 1, {"a": None, "b": 1}) == {"a": None, "b": 2}


def test_map_over_several_trees_takes_subtrees_of_the_others():
    assert tree.map(lambda a, b: (a, b), {"a": 1}, {"a": [2, 3]}) == {"a": (1, [2, 3])}
    assert tree.map(lambda a, b: a * b, Point(2, [3]), Point(5, [7])) == Point(10, [21])
    assert tree.map_with_path(lambda p, a, b: (tree.keystr(p), a + b), [1, {"k": 2}], [10, {"k": 20}]) == [
        ("[0]", 11),
        {"k": ("[1]['k']", 22)},
    ]


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        (
            {"a": 1, "b": None},
            {"a": 1, "b": 3},
            "tree.map: tree 2 does not have the structure of the first at ['b']\n  the first has None, tree 2 has a leaf",
        ),
        (
            [1, 2],
            [1, 2, 3],
            "tree.map: tree 2 does not have the structure of the first\n  the first has a list of 2, tree 2 has a list of 3",
        ),
        (
            {"p": [1, (2,)]},
            {"p": [1, [2]]},
            "tree.map: tree 2 does not have the structure of the first at ['p'][1]\n"
            "  the first has a tuple of 1, tree 2 has a list of 1",
        ),
        (
            {"w": 1, "b": 2},
            {"w": 1, "c": 2},
            "tree.map: tree 2 does not have the structure of the first: Dict key mismatch\n"
            "  the first has a dict with keys ['b', 'w'], tree 2 has a dict with keys ['c', 'w']",
        ),
    ],
)
def test_trees_that_differ(first: Any, second: Any, text: str):
    with pytest.raises(ValueError) as caught:
        tree.map(lambda a, b: a, first, second)
    assert str(caught.value) == text


def test_trees_that_differ_in_a_static_field():
    with pytest.raises(ValueError, match="tree 3 does not have the structure of the first"):
        tree.map(lambda a, b, c: a, Layer(1, 2, "a"), Layer(1, 2, "a"), Layer(1, 2, "b"))


def test_reduce_all_and_transpose():
    assert tree.reduce(lambda a, b: a + b, [1, {"x": 2}, (3,)]) == 6
    assert tree.reduce(lambda a, b: a + b, [], initializer=5) == 5
    assert tree.reduce(lambda a, b: a + b, [None, None], 5, is_leaf=lambda x: False) == 5
    assert tree.all([True, {"a": 1}]) and not tree.all((True, [0]))
    outer, inner = tree.structure([0, 0]), tree.structure({"a": 0, "b": (0, 0)})
    rows = [{"a": 1, "b": (2, 3)}, {"a": 4, "b": (5, 6)}]
    assert tree.transpose(outer, inner, rows) == {"a": [1, 4], "b": ([2, 5], [3, 6])}
    assert tree.transpose(outer, None, rows) == {"a": [1, 4], "b": ([2, 5], [3, 6])}
    assert tree.transpose(outer, tree.structure(()), [(), ()]) == ()
    with pytest.raises(ValueError, match=r"tree.transpose: a subtree has structure"):
        tree.transpose(outer, tree.structure({"c": 0}), [{"a": 1}, {"a": 2}])


def test_paths():
    value = {"layers": [Layer(1, {"k": 2}), Point(3, None)], "n": Named(4), "p": Pair(5, 6, "t")}
    assert tree.path_names(value, "params") == [
        "params['layers'][0].weight",
        "params['layers'][0].bias['k']",
        "params['layers'][1].x",
        "params['n'].inner",
        "params['p'][<flat index 0>]",
        "params['p'][<flat index 1>]",
    ]
    (path, leaf), *_ = tree.leaves_with_path(value)
    assert leaf == 1 and path == (tree.DictKey("layers"), tree.SequenceKey(0), tree.GetAttrKey("weight"))
    assert tree.keystr(path, simple=True, separator="/") == "layers/0/weight"
    assert tree.keystr(()) == ""


def test_prefixes():
    full = WORDS.structure({"a": [1, 2], "b": Point(3, {"c": 4})})
    assert WORDS.flatten_prefix(9, full, "in_shardings") == [9, 9, 9, 9]
    assert WORDS.flatten_prefix({"a": 1, "b": Point(2, 3)}, full, "in_shardings") == [1, 1, 2, 3]
    assert WORDS.flatten_prefix({"a": None, "b": 2}, full, "s", is_leaf=lambda x: x is None) == [None, None, 2, 2]
    assert tree.broadcast({"a": 1, "b": 2}, {"a": [0, 0], "b": 0}) == {"a": [1, 1], "b": 2}


@pytest.mark.parametrize(
    ("prefix", "where", "mine", "theirs"),
    [
        ({"a": 1}, "in_shardings", "a dict with keys ['a']", "a dict with keys ['a', 'b']"),
        ({"a": [1], "b": 2}, "in_shardings['a']", "a list of 1", "a list of 2"),
        ({"a": (1, 2), "b": 2}, "in_shardings['a']", "a tuple of 2", "a list of 2"),
        ({"a": [1, [2]], "b": 2}, "in_shardings['a'][1]", "a list of 1", "a leaf"),
        ([1, 2], "in_shardings", "a list of 2", "a dict with keys ['a', 'b']"),
    ],
)
def test_prefixes_that_do_not_fit(prefix: Any, where: str, mine: str, theirs: str):
    with pytest.raises(ValueError) as caught:
        WORDS.flatten_prefix(prefix, WORDS.structure({"a": [1, 2], "b": 3}), "in_shardings")
    assert str(caught.value) == (
        f"{where} does not fit: it is {mine}, the value in its place is {theirs}\n"
        "  a prefix has the same containers as the value, down to some level, and one entry for each subtree below\n"
        f"  fix: give one entry for all of {where}, or the same keys as the value"
    )


def test_dataclasses():
    assert tree.leaves(Layer(1, [2, 3])) == [1, 2, 3]
    assert tree.structure(Layer(1, 2, "a")) != tree.structure(Layer(1, 2, "b"))
    assert tree.map(lambda x: x * 2, Marked(5)) == Marked(10)
    assert tree.structure(Marked(1, 3)) != tree.structure(Marked(1, 4))

    @dataclasses.dataclass
    class Loose:
        a: Any
        b: Any

    with pytest.raises(ValueError, match=r"must be all fields of Loose that its __init__ takes; \['b'\] differ"):
        tree.register_dataclass(Loose, ["a"], [])


def test_registering_twice_is_an_error():
    with pytest.raises(ValueError):
        tree.register_dataclass(Layer, ["weight", "bias"], ["name"])


def test_partial_is_a_node_whose_arguments_are_leaves():
    partial = tree_util.Partial(max, 1, key=2)
    assert tree.leaves(partial) == [1, 2]
    doubled = tree.map(lambda x: 2 * x, partial)
    assert isinstance(doubled, tree_util.Partial) and doubled.args == (2,) and doubled.keywords == {"key": 4}
    assert tree.structure(tree_util.Partial(max, 1)) != tree.structure(tree_util.Partial(min, 1))
    assert tree_util.Partial(int, base=2)("101") == 5


def test_is_container():
    assert all(WORDS.is_container(x) for x in ([], {}, (), None, Point(1, 2), Layer(1, 2), tree_util.Partial(max)))
    assert not any(WORDS.is_container(x) for x in (1, "ab", np.zeros(3), object(), {1, 2}, [].append))


def test_tree_util_has_jax_names():
    assert tree_util.tree_map is tree.map and tree_util.register_pytree_node is tree.register_node
    assert all(hasattr(tree_util, name) for name in tree_util.__all__)


@pytest.mark.device
def test_trees_through_jit():
    @mj.jit
    def f(layer: Layer, call: Any, settings: Any) -> Any:
        return {"out": call(layer.weight), "layer": layer, "none": None, "rate": settings.rate}

    result = f(Layer(np.ones(2, np.float32), 2, "deep"), tree_util.Partial(lambda y, x: x + y, 3.0), Setting(0.5))
    assert np.asarray(result["out"]).tolist() == [4, 4] and result["none"] is None
    assert isinstance(result["layer"], Layer) and result["layer"].name == "deep"


def test_keys_of_a_defaultdict_are_sorted_as_those_of_a_dict() -> None:
    given = collections.defaultdict(list, {"b": 1, "a": 2})
    other = collections.defaultdict(list, {"a": 2, "b": 1})
    assert tree.leaves(given) == tree.leaves(dict(given)) == [2, 1]
    assert tree.structure(given) == tree.structure(other)
    assert [tree.keystr(path) for path, _ in tree.leaves_with_path(given)] == ["['a']", "['b']"]
    mapped = tree.map(lambda x: x + 1, given)
    assert mapped == {"a": 3, "b": 2} and list(mapped) == ["a", "b"] and mapped.default_factory is list
    assert tree.structure(given) != tree.structure(collections.defaultdict(dict, given))
    assert tree.leaves(collections.defaultdict(int, {10: 1, 2: 3})) == [3, 1]
    assert tree.leaves(collections.OrderedDict(b=1, a=2)) == [1, 2]


def test_a_partial_of_a_partial_holds_it_whole() -> None:
    inner = tree_util.Partial(lambda *args, **kwargs: (args, kwargs), 1, a=1)
    for first in (inner, functools.partial(inner.func, 1, a=1)):
        outer = tree_util.Partial(first, 2, b=2)
        assert outer.args == (2,) and outer.keywords == {"b": 2} and outer(3, a=4) == ((1, 2, 3), {"a": 4, "b": 2})
        assert tree.leaves(outer) == [2, 2]
        assert tree.map(lambda x: x + 1, outer)(5) == ((1, 3, 5), {"a": 1, "b": 3})
        assert tree.structure(outer) == tree.structure(tree_util.Partial(first, 5, b=6))
    assert tree.structure(outer) != tree.structure(tree_util.Partial(tree_util.Partial(print, 5), 6))
    assert isinstance(outer, functools.partial)


def test_treedefs_can_be_pickled_and_copied() -> None:
    trees = [{"a": 1, "b": (2, [3, None])}, 1, None, collections.OrderedDict(a=1), collections.defaultdict(int, a=1)]
    for given in [*trees, tree_util.Partial(print, 1), Point(1, 2)]:
        structure = tree.structure(given)
        for found in (pickle.loads(pickle.dumps(structure)), copy.deepcopy(structure), copy.copy(structure)):
            assert found == structure and hash(found) == hash(structure) and repr(found) == repr(structure)
            assert tree.structure(tree.unflatten(found, tree.leaves(given))) == structure


class Point(NamedTuple):
    x: Any
    y: Any


def test_one_level_of_a_node() -> None:
    pairs = [
        ({"b": 1, "a": (2,)}, [(2,), 1], ["['a']", "['b']"], ("a", "b")), ([1, [2]], [1, [2]], ["[0]", "[1]"], None), (None, [], [], None),
        (Point(1, 2), [1, 2], [".x", ".x"], Point), (tree_util.Partial(max, 1, k=2), [(1,), {"k": 2}], ["[<flat index 0>]", "[<flat index 1>]"], max),
    ]  # fmt: skip
    for node, children, keys, aux in pairs:
        assert (list(tree_util.flatten_one_level(node)[0]), tree_util.flatten_one_level(node)[1]) == (children, aux)
        named, again = tree_util.flatten_one_level_with_keys(node)
        assert [child for _, child in named] == children and again == aux and [str(key) for key, _ in named] == keys
        assert tree_util.is_tree_node(type(node)) and tree_util.default_registry.flatten_one_level(node)[1] == aux
    for function in (tree_util.flatten_one_level, tree_util.flatten_one_level_with_keys):
        with pytest.raises(ValueError, match="^a int is a leaf, no node that could be flattened$"):
            function(3)
    assert not tree_util.is_tree_node(int) and tree_util.default_registry.flatten_one_level(3) is None


def test_all_leaves() -> None:
    assert tree_util.all_leaves([1, "a", object()]) and not tree_util.all_leaves([1, None]) and not tree_util.all_leaves([(1,)])
    assert tree_util.all_leaves([(1,)], is_leaf=lambda x: isinstance(x, tuple)) and not tree_util.all_leaves([[1]], lambda x: False)


def test_treedefs_of_parts() -> None:
    parts = [1, {"a": 2}, None, ()]
    treedefs = [tree.structure(part) for part in parts]
    assert tree_util.treedef_tuple(treedefs) == tree.structure(tuple(parts)) and tree_util.treedef_children(tree.structure(parts)) == treedefs
    assert [tree_util.treedef_is_leaf(treedef) for treedef in treedefs] == [True, False, True, True]


def test_an_associative_reduction_is_a_shallow_tree() -> None:
    brackets = lambda a, b: f"({a}{b})"  # noqa: E731
    assert tree.reduce_associative(brackets, list("abcdefg")) == "((a(bc))((de)(fg)))"
    assert [tree.reduce_associative(brackets, list("abc"[:n]), identity="0") for n in range(4)] == ["0", "a", "(ab)", "(a(bc))"]
    with pytest.raises(TypeError, match="a tree without leaves needs an identity"):
        tree_util.tree_reduce_associative(brackets, [None])


def test_is_leaf_may_take_the_path() -> None:
    given = [1, (2, {"a": 3})]
    one_down = {"is_leaf": lambda path, node: len(path) == 1, "is_leaf_takes_path": True}
    assert [leaf for _, leaf in tree.leaves_with_path(given, **one_down)] == given
    assert tree.map_with_path(lambda path, x: (tree.keystr(path), x), given, **one_down) == [("[0]", 1), ("[1]", given[1])]


def test_the_fields_of_a_class() -> None:
    class Plain:
        def __init__(self, x: Any, y: Any = 0) -> None:
            self.x, self.y = x, y

    with pytest.raises(TypeError, match="Plain is no dataclass, so data_fields and meta_fields must be given"):
        tree.register_dataclass(Plain, ["x"])
    tree.register_dataclass(Plain, ["x"], ["y"])
    doubled = tree.map(lambda x: 2 * x, Plain(1, 5))
    assert (doubled.x, doubled.y) == (2, 5) and tree.structure(Plain(1, 5)) != tree.structure(Plain(1, 6))

    @dataclasses.dataclass
    class Dropping:
        x: Any
        cache: Any = None
        op: str = tree.static(default="add", metadata={"doc": 1})

    tree.register_dataclass(Dropping, drop_fields=["cache"])
    assert tree.map(lambda x: 2 * x, Dropping(1, 5, "mul")) == Dropping(2, None, "mul")
    assert dataclasses.fields(Dropping)[2].metadata == {"doc": 1, "static": True}


def test_paths_of_keys_of_ones_own() -> None:
    assert tree.keystr(("own", tree_util.DictKey("a"), tree_util.FlattenedIndexKey(3)), simple=True, separator="/") == "own/a/3"


JAX_CLASSES = """
import collections, dataclasses, sys, types

class Registry:  # what jax.tree_util.default_registry is asked for
    def __init__(self):
        from jaxlib import _jax
        self.own = _jax.pytree.PyTreeRegistry(
            enable_none=True, enable_tuple=True, enable_namedtuple=True, enable_list=True, enable_dict=True)
    def __getattr__(self, name):
        return getattr(self.own, name)

jax = types.ModuleType("jax")
jax.tree_util = types.ModuleType("jax.tree_util")
jax.tree_util.default_registry = Registry()
sys.modules["jax"], sys.modules["jax.tree_util"] = jax, jax.tree_util

import numpy as np
import meshjit as mj

class Linear:
    def __init__(self, w, b, name):
        self.w, self.b, self.name = w, b, name

keyed = lambda m: (((mj.tree_util.GetAttrKey("w"), m.w), (mj.tree_util.GetAttrKey("b"), m.b)), m.name)
jax.tree_util.default_registry.register_node(Linear, lambda m: ((m.w, m.b), m.name), lambda name, c: Linear(*c, name), keyed)
model = Linear(np.ones(2), None, "first")
print(len(mj.tree.leaves([model, 3])), mj.tree.structure(model) == mj.tree.structure(Linear(0, None, "first")))
print(mj.tree.structure(model) == mj.tree.structure(Linear(0, None, "second")), mj.tree.leaves_with_path(model)[0][0])
print(mj.jit(lambda m: Linear(m.w * 2, m.b, m.name))(model).w, mj.tree.map(lambda x: x + 1, model).name)
print(mj.grad(lambda m: (m.w ** 2).sum())(model).w)
"""


def test_classes_that_jax_knows_are_nodes_where_jax_is_in_the_process():
    result = subprocess.run([sys.executable, "-c", JAX_CLASSES], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == ["2 True", "False (GetAttrKey(name='w'),)", "[2. 2.] first", "[2. 2.]"]


def test_keys_are_leaves_and_their_paths_end_at_them():
    keys = mj.random.split(mj.random.key(0), 3)
    value = {"k": [keys, 1], "n": None}
    assert tree.leaves(value)[0] is keys and tree.structure(value) == tree.structure({"k": [0, 1], "n": None})
    assert tree.path_names(value, "v") == WORDS.path_names(value, "v") == ["v['k'][0]", "v['k'][1]"]
    assert tree.map(lambda x: getattr(x, "shape", ()), value) == {"k": [(3,), ()], "n": None}
    assert pickle.loads(pickle.dumps(tree.structure(value))) == tree.structure(value)


def test_functions_have_jaxs_names_for_their_parameters():
    pairs = tree_util.tree_transpose(
        outer_treedef=tree.structure([0, 0]), inner_treedef=None, pytree_to_transpose=[{"a": 1}, {"a": 2}]
    )
    assert pairs == {"a": [1, 2]}
    assert tree.broadcast(prefix_tree=1, full_tree=(0, 0)) == (1, 1) and tree.reduce(function=max, tree=[1, 3]) == 3
    assert tree_util.keystr(keys=(tree_util.DictKey("a"),)) == "['a']"


class Sorted:
    """A node that sorts what it has into leaves and statics by looking at it: numbers are none of its leaves."""

    def __init__(self, *values: Any) -> None:
        self.values = values


tree.register_node(
    Sorted,
    lambda x: (tuple(v for v in x.values if not isinstance(v, int)), tuple(v for v in x.values if isinstance(v, int))),
    lambda static, leaves: Sorted(*leaves, *static),
)


def test_classes_that_look_at_their_leaves_are_taken_apart_once_only():
    value = {"a": Sorted(np.ones(2, np.float32), 3, mj.random.key(0)), "b": (None, mj.new_ref(1.0))}
    assert users_treedef(WORDS.structure(value)) == tree.structure(value)
    assert [str(x) for x in key_types(WORDS.structure(value))] == ["None", "key<fry>"]
    given = Sorted(np.ones(2, np.float32), 3)
    doubled = mj.jit(lambda s: Sorted(s.values[0] * 2, s.values[1]))(given)
    assert doubled.values[1] == 3 and doubled.values[0][0] == 2
    gradient, compiled = mj.grad(lambda s: (s.values[0] ** 2).sum())(given), mj.jit(lambda s: s).lower(given).compile()
    assert gradient.values[0][0] == 2 and gradient.values[1] == 3 and compiled(given).values[1] == 3
    assert compiled.in_tree.num_leaves == 1 and len(tree.leaves(compiled.input_shardings)) == 1
