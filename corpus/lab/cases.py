"""Cases: corpus/cases/*.toml, with families (`each`) expanded."""

import copy
import tomllib

KEYS = {"name", "about", "wire", "server", "client", "capture", "snap", "expect", "also", "healthy", "arguments", "mended", "measure",
        "each", "helper", "edit", "seconds", "port", "warm", "rare", "size", "still"}


def fill(value, names):
    """Replaces {key} in all strings; a string that is one {key} becomes the value itself."""
    if isinstance(value, dict):
        return {key: fill(inner, names) for key, inner in value.items()}
    if isinstance(value, list):
        return [fill(inner, names) for inner in value]
    if not isinstance(value, str):
        return value
    for key, replacement in names.items():
        if value == f"{{{key}}}":
            return replacement
        value = value.replace(f"{{{key}}}", str(replacement))
    return value


def merged(case, changes):
    """A case with the changes of its variant; each key replaces the whole value."""
    return {**copy.deepcopy(case), **changes}


def load(folder):
    cases = {}
    for path in sorted(folder.glob("*.toml")):
        with open(path, "rb") as file:
            content = tomllib.load(file)
        for raw in content["case"]:
            unknown = set(raw) - KEYS
            if unknown:
                raise SystemExit(f"{path}: {raw.get('name')}: unknown keys {unknown}")
            for names in raw.get("each", [{}]):
                case = fill({**content.get("common", {}), **{k: v for k, v in raw.items() if k != "each"}}, names)
                if bool(case.get("expect")) == bool(case.get("healthy")):
                    raise SystemExit(f"{path}: {case['name']}: either `expect` or `healthy`")
                if case["name"] in cases:
                    raise SystemExit(f"{path}: {case['name']} exists twice")
                case["family"] = path.stem
                cases[case["name"]] = case
    return cases
