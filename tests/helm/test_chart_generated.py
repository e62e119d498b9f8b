"""The files generated from values.yaml are up to date, and values.yaml explains its values."""

from __future__ import annotations

import json
import re
import tomllib

import kubernetes_validate
import yaml
from jsonschema import Draft7Validator

from helm.tools.chart_readme import chart_readme
from helm.tools.values_schema import read_values, values_schema
from herd.config.loading.keys import setting_keys
from tests.helm.rendering import CHART, CI_FILES, ROOT


def test_the_schema_is_up_to_date() -> None:
    assert json.loads((CHART / "values.schema.json").read_text()) == values_schema(), "make helm"


def test_the_readme_is_up_to_date() -> None:
    assert (CHART / "README.md").read_text() == chart_readme(), "make helm"


def test_every_value_has_a_comment() -> None:
    without = [".".join(value.path) for value in read_values() if not value.comment]
    assert without == []


def test_the_schema_is_draft_07_and_accepts_shipped_values() -> None:
    schema = values_schema()
    Draft7Validator.check_schema(schema)
    validator = Draft7Validator(schema)
    assert list(validator.iter_errors(yaml.safe_load((CHART / "values.yaml").read_text()))) == []
    for name in CI_FILES:
        assert list(validator.iter_errors(yaml.safe_load((CHART / "ci" / name).read_text()))) == []


def test_the_schema_knows_every_setting_and_refuses_others() -> None:
    validator = Draft7Validator(values_schema())
    for key in setting_keys():
        nested: object = {"nobody_has": "this"}
        for name in reversed(key.path[:-1]):
            nested = {name: nested}
        assert not validator.is_valid({"experiment": nested}), key.dotted
        definitions = validator.schema["definitions"]
        properties = definitions["RunSettings"]["properties"]
        for name in key.path[:-1]:
            # A section has one definition, or one for each of its kinds.
            kinds = re.findall(r"'#/definitions/(\w+)'", str(properties[name]))
            properties = {field: value for kind in kinds for field, value in definitions[kind]["properties"].items()}
        assert key.path[-1] in properties


def test_unknown_values_are_refused_in_every_section() -> None:
    validator = Draft7Validator(values_schema())
    for value in read_values():
        if value.is_section:
            nested: object = {"nobody_has": "this"}
            for name in reversed(value.path):
                nested = {name: nested}
            assert not validator.is_valid(nested), value.path


def test_versions_in_the_chart_match_the_project() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert chart["appVersion"] == project["version"]
    assert chart["kubeVersion"] == ">=1.32.0-0"
    assert kubernetes_validate.latest_version() == "1.37.0"  # add newer versions to the tested ones
