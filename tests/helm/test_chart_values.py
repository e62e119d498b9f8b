"""Where values of the chart end up, beyond the default release (default.snapshot.yaml)."""

from __future__ import annotations

import pytest

from tests.helm.rendering import at, find, names, render, with_values

pytestmark = pytest.mark.processes

POD = "spec template spec"
RUN = f"{POD} volumes run"
CLAIM = "spec volumeClaimTemplates"
REPLICA = "herd-paramserver-replica"
GPU = "containers inference resources limits nvidia.com/gpu"
KEDA = ("actor.autoscaling.enabled=true", "actor.autoscaling.kind=keda")
DICE = ("experiment.loss.kind=dice",)
SHARED = ("experiment.replay.kind=shared", "experiment.learner.queue_batches=16")
REMOTE = ("experiment.actor.inference=remote",)
EVALUATED = ("experiment.evaluation.interval_seconds=600",)
KEPT, EXISTING = "evaluator.persistence.enabled=true", "evaluator.persistence.existingClaim=mine"
SHARDS = "learner.shards=2"
STORED = "learner.persistence.enabled=true"
UNLIMITED = "learner.resources.limits.cpu=null"
DIGEST = "sha256:" + 64 * "a"


@pytest.mark.parametrize(
    ("words", "named", "path", "wanted"),
    [
        (("actor.replicas=4000",), "Deployment herd-actor", "spec replicas", 4000),
        (("actor.replicas=null",), "Deployment herd-actor", "spec replicas", None),
        (("actor.autoscaling.enabled=true",), "Deployment herd-actor", "spec replicas", None),
        (KEDA, "Deployment herd-actor", "spec replicas", None),
        (("actor.rollout.maxUnavailable=10%",), "Deployment herd-actor", "spec strategy rollingUpdate maxUnavailable", "10%"),
        (("image.registry=r/x/", "image.tag=v7"), "Deployment herd-actor", f"{POD} containers actor image", "r/x/herd-actor:v7"),
        (
            ("image.registry=r/x", f"actor.image.digest={DIGEST}", "actor.image.tag=v9"),
            "Deployment herd-actor",
            f"{POD} containers actor image",
            f"r/x/herd-actor@{DIGEST}",
        ),
        (("serviceAccount.create=false",), "Deployment herd-actor", f"{POD} serviceAccountName", "default"),
        (
            ("monitoring.podMonitor.enabled=true",),
            "Deployment herd-actor",
            "spec template metadata annotations prometheus.io/scrape",
            None,
        ),
        (("monitoring.scrapeAnnotations=false",), "Deployment herd-actor", "spec template metadata annotations prometheus.io/scrape", None),
        # A new shard must become ready before the others are replaced: otherwise the controller and the shard wait for each other.
        ((SHARDS,), "StatefulSet herd-learner", f"{POD} containers learner readinessProbe httpGet path", "/healthz"),
        ((SHARDS,), "StatefulSet herd-learner", f"{POD} containers learner startupProbe httpGet path", "/healthz"),
        (("learner.sharedMemory=3Gi",), "StatefulSet herd-learner", f"{POD} volumes shm emptyDir sizeLimit", "3Gi"),
        ((STORED,), "StatefulSet herd-learner", RUN, None),
        ((STORED,), "StatefulSet herd-learner", f"{CLAIM} 0 spec resources requests storage", "10Gi"),
        ((STORED,), "StatefulSet herd-learner", "spec persistentVolumeClaimRetentionPolicy whenDeleted", "Retain"),
        ((STORED, "learner.persistence.storageClass=fast"), "StatefulSet herd-learner", f"{CLAIM} 0 spec storageClassName", "fast"),
        ((STORED, 'learner.persistence.storageClass=""'), "StatefulSet herd-learner", f"{CLAIM} 0 spec storageClassName", ""),
        (("learner.persistence.existingClaim=mine",), "StatefulSet herd-learner", CLAIM, None),
        (("learner.persistence.existingClaim=mine",), "StatefulSet herd-learner", f"{RUN} persistentVolumeClaim claimName", "mine"),
        # Without a limit, limits.cpu is the number of CPUs of the node.
        (
            (UNLIMITED,),
            "StatefulSet herd-learner",
            f"{POD} containers learner env OMP_NUM_THREADS valueFrom resourceFieldRef resource",
            "requests.cpu",
        ),
        (
            (UNLIMITED, "learner.resources.requests.cpu=null"),
            "StatefulSet herd-learner",
            f"{POD} containers learner env OMP_NUM_THREADS",
            None,
        ),
        (("learner.podDisruptionBudget.enabled=true",), "PodDisruptionBudget herd-learner", "spec maxUnavailable", 0),
        (("paramserverReplica.replicas=3",), f"PodDisruptionBudget {REPLICA}", "spec maxUnavailable", 1),
        (("experiment.paramserver.replicas=2",), f"StatefulSet {REPLICA}", "spec replicas", 2),
        # A cluster IP, which balances over the replicas that have weights.
        (("paramserverReplica.replicas=3",), f"Service {REPLICA}", "spec clusterIP", None),
        (("paramserverReplica.replicas=3",), f"Service {REPLICA}", "spec publishNotReadyAddresses", None),
        (DICE, "StatefulSet herd-bandit", "spec replicas", 1),
        (DICE, "StatefulSet herd-bandit", CLAIM, None),
        ((*DICE, "bandit.persistence.enabled=true"), "StatefulSet herd-bandit", f"{CLAIM} 0 metadata name", "run"),
        ((*DICE, "bandit.persistence.enabled=true"), "StatefulSet herd-bandit", RUN, None),
        ((*SHARED, "replay.persistence.enabled=true"), "StatefulSet herd-replay", f"{CLAIM} 0 metadata name", "run"),
        ((*SHARED, "replay.persistence.enabled=true"), "StatefulSet herd-replay", RUN, None),
        ((*SHARED, "experiment.replay_service.replicas=3"), "StatefulSet herd-replay", "spec replicas", 3),
        ((*SHARED, "experiment.replay_service.replicas=2", "replay.replicas=3"), "StatefulSet herd-replay", "spec replicas", 3),
        (
            SHARED,
            "StatefulSet herd-replay",
            f"{POD} containers replay env HERD_INDEX valueFrom fieldRef fieldPath",
            "metadata.labels['apps.kubernetes.io/pod-index']",
        ),
        (SHARED, "Service herd-replay", "spec clusterIP", "None"),
        ((*REMOTE, "experiment.inference.replicas=3"), "Deployment herd-inference", "spec replicas", 3),
        ((*REMOTE, "inference.replicas=5"), "Deployment herd-inference", "spec replicas", 5),
        ((*REMOTE, "inference.gpu.enabled=true"), "Deployment herd-inference", f"{POD} {GPU}", 1),
        ((*REMOTE, "inference.gpu.enabled=true"), "Deployment herd-inference", f"{POD} tolerations 0 key", "nvidia.com/gpu"),
        (EVALUATED, "Deployment herd-evaluator", "spec replicas", 1),
        (EVALUATED, "Deployment herd-evaluator", "spec strategy", {"type": "Recreate"}),
        (EVALUATED, "Deployment herd-evaluator", f"{RUN} emptyDir", {"sizeLimit": "64Mi"}),
        ((*EVALUATED, KEPT), "Deployment herd-evaluator", f"{RUN} persistentVolumeClaim claimName", "herd-evaluator"),
        ((*EVALUATED, KEPT, EXISTING), "Deployment herd-evaluator", f"{RUN} persistentVolumeClaim claimName", "mine"),
        (
            (*EVALUATED, KEPT),
            "PersistentVolumeClaim herd-evaluator",
            "metadata annotations",
            {"helm.sh/resource-policy": "keep"},
        ),
        (
            (*EVALUATED, KEPT, "evaluator.persistence.retention.whenDeleted=Delete"),
            "PersistentVolumeClaim herd-evaluator",
            "metadata annotations",
            None,
        ),
    ],
)
def test_a_value_ends_up_where_it_belongs(words: tuple[str, ...], named: str, path: str, wanted: object) -> None:
    kind, name = named.split()
    assert at(find(render(*with_values(*words)), kind, name), path) == wanted


@pytest.mark.parametrize(
    ("words", "absent"),
    [
        (("serviceAccount.create=false",), {"ServiceAccount herd"}),
        (("selfTest.enabled=false",), {"Pod herd-test", "NetworkPolicy herd-test"}),
        (("paramserver.podDisruptionBudget.enabled=false",), {"PodDisruptionBudget herd-paramserver"}),
    ],
)
def test_objects_can_be_disabled(words: tuple[str, ...], absent: set[str]) -> None:
    objects, fewer = ({" ".join(each) for each in names(render(*with_values(*some)))} for some in ((), words))
    assert objects - fewer == absent


@pytest.mark.parametrize(
    ("words", "present"),
    [
        (("experiment.paramserver.replicas=2",), {"StatefulSet", "Service", "PodDisruptionBudget", "NetworkPolicy"}),
        (
            ("experiment.paramserver.replicas=2", "paramserverReplica.podDisruptionBudget.enabled=false"),
            {"StatefulSet", "Service", "NetworkPolicy"},
        ),
        (("experiment.paramserver.replicas=2", "paramserverReplica.replicas=0"), set()),
    ],
)
def test_replicas_of_the_parameter_server_come_from_the_experiment_unless_overridden(words: tuple[str, ...], present: set[str]) -> None:
    assert {kind for kind, name in names(render(*with_values(*words))) if name == REPLICA} == present
