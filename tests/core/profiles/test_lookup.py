"""What the consumer answers from a parsed database, by an oracle that shares no code with it or with us."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def database(made, tmp_path_factory):
    from perfcollect_core.cli import main

    folder = tmp_path_factory.mktemp("parsed")
    source = made.write(folder / "kernel_details.csv", made.synthetic(5_000, seed=4))
    assert main(["-q", "parse", "--profiling-path", str(source), "--database-path", str(folder / "db")]) == 0
    return folder / "db"


def test_every_row_answers_with_its_own_duration(database, oracle):
    asked = 0
    for path in sorted(database.glob("*.csv")):
        table = oracle.Table(path)
        for row, inputs, _ in table.rows:
            duration, answered = table.exact(row)
            twin = [other for other in table.rows if oracle_twin(oracle, row, other[0])]
            assert duration == float(row["Profiling Average Duration(us)"]) or len(twin) > 1, (
                path.stem,
                inputs,
            )
            assert oracle_twin(oracle, row, answered), (path.stem, inputs)
            asked += 1
    assert asked > 140


def oracle_twin(oracle, one, other):
    """Whether the consumer cannot tell two rows apart: equal but for a weight stored as ND or FRACTAL_NZ."""

    def logical(row):
        tensors = zip(oracle.shapes(row["Input Shapes"]), _forms(oracle, row), strict=False)
        return [tuple(sorted(oracle.restored(shape, form)[-2:])) for shape, form in tensors]

    return logical(one) == logical(other)


def _forms(oracle, row):
    return oracle.words(row["Input Formats"]) + ["ND"] * 31


def test_no_cell_of_a_parsed_table_makes_the_consumer_raise(database, oracle):
    for path in database.glob("*.csv"):
        assert oracle.Table(path).rows


def test_a_padded_question_takes_the_larger_of_two_rows_first(made, parse, oracle, tmp_path):
    shapes = ("{m},512;512,512", "DT_BF16;DT_BF16", "{m},512", "DT_BF16")
    rows = [
        made.kernel("MatMulV2", us, *(text.format(m=m) for text in shapes), number=m, core="AI_CORE")
        for m, us in ((16, "4.0"), (64, "9.0"), (32, "6.0"))
    ]
    source = made.write(tmp_path / "kernel_details.csv", rows)
    parse(source, tmp_path / "db")
    table = oracle.Table(tmp_path / "db" / "MatMulV2.csv")

    first = [row["Input Shapes"] for row, _, _ in table.rows]

    assert first == ['"64,512;512,512"', '"32,512;512,512"', '"16,512;512,512"']


def test_between_two_rows_the_answer_lies_on_the_line_and_beyond_them_there_is_none(
    made, parse, oracle, tmp_path
):
    rows = [
        made.kernel(
            "MatMulV2",
            us,
            f"{m},512;512,512",
            "DT_BF16;DT_BF16",
            f"{m},512",
            "DT_BF16",
            number=m,
            core="AI_CORE",
        )
        for m, us in ((100, "10.0"), (300, "30.0"))
    ]
    source = made.write(tmp_path / "kernel_details.csv", rows)
    parse(source, tmp_path / "db")
    table = oracle.Table(tmp_path / "db" / "MatMulV2.csv")
    (row, _, _), *_ = table.rows

    answers = [
        table.interpolated({**row, "Input Shapes": f'"{m},512;512,512"'}) for m in (99, 100, 150, 300, 301)
    ]

    assert answers == [None, 10.0, 15.0, 30.0, None]


def test_two_directions_of_one_cast_answer_each_for_themselves(made, parse, oracle, tmp_path):
    rows = [
        made.kernel("Cast", "2.0", "64,5120", "DT_BF16", "64,5120", "FLOAT", number=0),
        made.kernel("Cast", "3.0", "64,5120", "FLOAT", "64,5120", "DT_BF16", number=1),
    ]
    source = made.write(tmp_path / "kernel_details.csv", rows)
    parse(source, tmp_path / "db")
    table = oracle.Table(tmp_path / "db" / "Cast.csv")

    answers = {row["Input Data Types"]: table.exact(row)[0] for row, _, _ in table.rows}

    assert answers == {"DT_BF16": 2.0, "FLOAT": 3.0}
