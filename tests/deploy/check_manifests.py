"""Checks Kubernetes files against the fields of kubernetes_fields.yaml.

usage: check_manifests.py FIELDS FILE...
Prints every problem. The exit code is 1 if there is any, and 77 if PyYAML is missing.
"""
import re
import sys

try:
    import yaml
except ImportError:
    print('skipped: PyYAML is missing (tools/setup --test installs python3-yaml)')
    sys.exit(77)

PLAIN = {
    'string': lambda value: isinstance(value, str),
    'int': lambda value: isinstance(value, int) and not isinstance(value, bool),
    'bool': lambda value: isinstance(value, bool),
    'quantity': lambda value: re.fullmatch(r'[0-9.]+(m|k|[KMGTP]i?)?', str(value)) is not None,
    'map': lambda value: isinstance(value, dict)
    and all(isinstance(part, str) for pair in value.items() for part in pair),
    'any': lambda value: True,
}


class UniqueKeyLoader(yaml.SafeLoader):
    """PyYAML silently takes the last of two equal keys; a server rejects them."""

    def construct_mapping(self, node, deep=False):
        keys = [key.value for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.YAMLError(f'the field {key} appears twice, line {node.start_mark.line + 1}')
        return super().construct_mapping(node, deep)


def check_object(value, fields, types, where):
    if not isinstance(value, dict):
        return [f'{where} must have fields']
    problems = []
    for name, kind in fields.items():
        if kind.endswith('!') and name not in value:
            problems.append(f'{where}.{name} is missing')
    for name, part in value.items():
        if name in fields:
            problems += check(part, fields[name].rstrip('!'), types, f'{where}.{name}')
        else:
            problems.append(f'{where}.{name} is not a field of this type')
    return problems


def check(value, kind, types, where):
    """Returns the problems of a value of this kind."""
    if kind in types:
        return check_object(value, types[kind], types, where)
    if kind in PLAIN:
        return [] if PLAIN[kind](value) else [f'{where} must be of type {kind}, but is {value!r}']
    if kind.startswith('['):
        if not isinstance(value, list):
            return [f'{where} must be a list']
        return [problem for i, part in enumerate(value) for problem in check(part, kind[1:-1], types, f'{where}[{i}]')]
    if kind.startswith('{'):
        if not isinstance(value, dict):
            return [f'{where} must be a map']
        return [problem for key, part in value.items() for problem in check(part, kind[1:-1], types, f'{where}.{key}')]
    return [] if value in kind.split('|') else [f'{where} must be one of {kind}, but is {value!r}']


def containers_of(value):
    """Returns all containers within a value."""
    if isinstance(value, list):
        return [container for part in value for container in containers_of(part)]
    if not isinstance(value, dict):
        return []
    return value.get('containers', []) + containers_of(list(value.values()))


def check_meaning(document, others):
    """Checks what the operators need beyond the fields."""
    kind, spec = document['kind'], document['spec']
    names = [container['name'] for container in containers_of(spec)]
    problems = []
    if kind == 'PyTorchJob' and names != ['pytorch']:
        problems.append('the operator looks for one container named pytorch')
    if kind == 'TrainingRuntime':
        jobs = {job['name']: job['template'].get('metadata', {}) for job in spec['template']['spec']['replicatedJobs']}
        step = jobs.get('node', {}).get('labels', {}).get('trainer.kubeflow.org/trainjob-ancestor-step')
        if names != ['node'] or step != 'trainer':
            problems.append('Trainer sets variables only in a container "node" of a job "node" that is the step "trainer"')
    if kind == 'TrainJob':
        reference = spec['runtimeRef']
        if (reference.get('kind'), reference['name']) not in [(o['kind'], o['metadata']['name']) for o in others]:
            problems.append(f'the file has no {reference.get("kind")} {reference["name"]}')
        if 'trainer' not in spec:
            problems.append('Trainer sets variables only if spec.trainer exists')
    for container in containers_of(spec):
        if container.get('command', [])[:2] != ['lockstep', 'run']:
            problems.append(f'container {container["name"]} does not run `lockstep run`')
        if 'LOCKSTEP_SECRET' not in [variable['name'] for variable in container.get('env', [])]:
            problems.append(f'container {container["name"]} has no LOCKSTEP_SECRET, which several hosts need')
    return [f'{kind}: {problem}' for problem in problems]


def check_text(text, fields):
    """Returns the problems of one file."""
    try:
        documents = list(yaml.load_all(text, UniqueKeyLoader))
    except yaml.YAMLError as error:
        return [str(error)]
    problems = [] if re.search(r'Kubernetes 1\.\d+', text) else ['the file does not name its Kubernetes version']
    for document in documents:
        name = f'{document.get("apiVersion")}/{document.get("kind")}'
        if name not in fields['kinds']:
            problems.append(f'{name} is not in the list of fields')
            continue
        wrong = check(document, fields['kinds'][name], fields['types'], document['kind'])
        problems += wrong or check_meaning(document, documents)
    return problems


def main(fields_path, *paths):
    with open(fields_path, encoding='utf-8') as file:
        fields = yaml.safe_load(file)
    failed = False
    for path in paths:
        with open(path, encoding='utf-8') as file:
            problems = check_text(file.read(), fields)
        for problem in problems:
            print(f'{path}: {problem}')
        failed = failed or bool(problems)
    return 1 if failed or not paths else 0


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
