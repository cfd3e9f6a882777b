"""The checker finds what a server or an operator would reject.

usage: check_manifests_test.py FIELDS GOOD_FILE
"""
import sys

from check_manifests import check_text, yaml

# A text in a file without problems, its replacement, and the problem that the checker must report.
MISTAKES = [
    ('nprocPerNode:', 'nProcPerNode:', 'PyTorchJob.spec.nProcPerNode is not a field of this type'),
    ('nprocPerNode: "4"', 'nprocPerNode: 4', "must be of type string, but is 4"),
    ('restartPolicy: OnFailure', 'restartPolicy: Sometimes', 'must be one of Always|OnFailure|Never|ExitCode'),
    ('minReplicas: 1', 'minReplicas: one', 'must be of type int'),
    ('name: pytorch', 'name: trainer', 'one container named pytorch'),
    ('memory: 16Gi', 'memory: 16 GB', 'must be of type quantity'),
    ('image:', 'img:', 'containers[0].img is not a field of this type'),
    ('kind: PyTorchJob', 'kind: TorchJob', 'kubeflow.org/v1/TorchJob is not in the list of fields'),
    ('"lockstep", "run"', '"torchrun"', 'does not run `lockstep run`'),
    ('name: LOCKSTEP_SECRET', 'name: OTHER', 'has no LOCKSTEP_SECRET'),
    ('rdzvPort: 29400', 'rdzvPort: 29400\n    rdzvPort: 29401', 'rdzvPort appears twice'),
    ('pytorchReplicaSpecs:', 'elasticPolicyOfNothing:', 'pytorchReplicaSpecs is missing'),
    ('Kubernetes 1.', 'K8s ', 'does not name its Kubernetes version'),
]


def main(fields_path, good_path):
    with open(fields_path, encoding='utf-8') as file:
        fields = yaml.safe_load(file)
    with open(good_path, encoding='utf-8') as file:
        good = file.read()
    assert check_text(good, fields) == [], check_text(good, fields)
    for old, new, expected in MISTAKES:
        assert old in good, f'{good_path} has no {old!r} any more: change this test with it'
        problems = check_text(good.replace(old, new), fields)
        assert any(expected in problem for problem in problems), f'{new!r}: expected {expected!r}, got {problems}'
    print(f'{len(MISTAKES)} mistakes were found')


if __name__ == '__main__':
    main(*sys.argv[1:])
