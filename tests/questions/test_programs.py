from dkgi.questions.programs import (
    All,
    Follow,
    Links,
    Mentions,
    Minus,
    Node,
    Program,
    evaluate,
    fan_out,
    hops,
    loosened,
    reach,
    record,
    reread,
)

# Films 1 to 60 are by director 100, films 1 to 3 by 101 as well; 0 is a studio of films 50 to 60.
LINKS = Links(
    {
        "by": [*((film, 100) for film in range(1, 61)), (1, 101), (2, 101), (3, 101)],
        "edited_by": [(1, 101)],
        "made_at": [(film, 0) for film in range(50, 61)],
    }
)


def films_of(person: int, *relations: str, wider: tuple[str, ...] = ()) -> Follow:
    return Follow(Node(person), relations or ("by",), reverse=True, wider=wider)


AT_STUDIO = Follow(Node(0), ("made_at",), reverse=True)


def found(program: Program) -> list[int]:
    return sorted(evaluate(program, LINKS))


def test_follow_goes_along_the_rows_or_against_them_and_joins_relations() -> None:
    assert found(Follow(Node(1), ("by",))) == [100, 101]
    assert found(films_of(101)) == [1, 2, 3]
    assert found(Follow(Node(1), ("by", "made_at"))) == [100, 101]
    assert found(Follow(Node(55), ("by", "made_at"))) == [0, 100]


def test_all_intersects_and_minus_subtracts() -> None:
    assert found(All((films_of(100), films_of(101), Mentions("sea", frozenset({2, 3, 77}))))) == [2, 3]
    assert found(Minus(films_of(101), films_of(101, "edited_by"))) == [2, 3]


def test_loosened_drops_each_constraint_once_at_any_depth() -> None:
    both = All((films_of(100), films_of(101, "edited_by", wider=("by", "edited_by"))))
    program = Follow(Minus(both, AT_STUDIO), ("by",))
    rest = [films_of(101, "edited_by", wider=("by", "edited_by")), films_of(100)]
    wide = All((films_of(100), films_of(101, "by", "edited_by")))
    kept: list[Program] = [both, *(Minus(part, AT_STUDIO) for part in (rest[0], rest[1], wide))]
    assert set(loosened(program)) == {Follow(start, ("by",)) for start in kept}
    assert len(list(loosened(program))) == 4


def test_loosened_drops_constraints_of_what_is_subtracted() -> None:
    program = Minus(films_of(100), All((films_of(101), AT_STUDIO)))
    assert set(loosened(program)) == {
        films_of(100),
        Minus(films_of(100), films_of(101)),
        Minus(films_of(100), AT_STUDIO),
    }


def test_reread_changes_only_the_edges_that_follow_the_given_relations() -> None:
    program = Minus(All((films_of(101), films_of(101, "edited_by"))), films_of(100, "edited_by"))
    wide = ("by", "edited_by")
    assert reread(program, ("edited_by",), wide) == Minus(
        All((films_of(101), films_of(101, *wide))), films_of(100, *wide)
    )


def test_reach_sees_the_first_neighbours_of_each_node_and_relation() -> None:
    assert sorted(reach(films_of(100), LINKS, shown=5)) == [1, 2, 3, 4, 5]
    assert sorted(reach(Follow(films_of(100), ("made_at",)), LINKS, shown=5)) == []
    assert sorted(reach(Follow(films_of(100), ("made_at",)), LINKS, shown=60)) == [0]


def test_reach_enters_an_intersection_by_any_part_and_checks_the_others_completely() -> None:
    assert sorted(reach(All((films_of(100), AT_STUDIO)), LINKS, shown=5)) == [50, 51, 52, 53, 54]
    assert sorted(reach(Minus(films_of(100), films_of(101)), LINKS, shown=5)) == [4, 5]


def test_fan_out_is_the_widest_step_of_the_easiest_way() -> None:
    assert fan_out(films_of(100), LINKS) == 60
    assert fan_out(All((films_of(100), AT_STUDIO)), LINKS) == 11
    assert fan_out(Follow(films_of(101), ("by",)), LINKS) == 3
    assert fan_out(Follow(Follow(films_of(101), ("by",)), ("by",), reverse=True), LINKS) == 60
    assert fan_out(Minus(films_of(101), films_of(100)), LINKS) == 3
    assert fan_out(Mentions("sea", frozenset({2})), LINKS) == 0


def test_hops_counts_the_longest_way() -> None:
    assert hops(Follow(All((films_of(100), Mentions("sea", frozenset()))), ("by",))) == 2
    assert hops(Minus(Mentions("sea", frozenset()), films_of(100))) == 1


def test_record_is_json_that_names_every_part() -> None:
    program = Minus(All((films_of(100), Mentions("sea", frozenset({2})))), films_of(101, "edited_by", wider=("by",)))
    by_100 = {"follow": ["by"], "way": "to_source", "wider": [], "from": {"node": 100}}
    by_101 = {"follow": ["edited_by"], "way": "to_source", "wider": ["by"], "from": {"node": 101}}
    assert record(program) == {"keep": {"all": [by_100, {"mentions": "sea"}]}, "minus": by_101}
