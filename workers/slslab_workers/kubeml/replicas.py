"""All functions and the job in one process, on one device: the same documents, local steps and merges."""

from typing import Any

import torch

from slslab_workers.channels.events import Tracer
from slslab_workers.kubeml.local import LocalTraining, read_tensors, validate, write_tensors
from slslab_workers.kubeml.merging import Mean, weighted
from slslab_workers.kubeml.settings import PARALLELISM, STATIC, Tensors, epoch_of
from slslab_workers.kubeml.shares import DOCUMENT, document_count, share_of
from slslab_workers.plan import Plan, PlanError
from slslab_workers.training.replicas import Judgement, Replicas


class KubeMLReplicas(Replicas):
    """Functions that share one model in turns; between their turns it is the reference."""

    def begin(self) -> None:
        """Divide an epoch's documents among the functions."""
        self._tracer = Tracer(self._note)
        self._epoch = epoch_of(self.plan, self.plan.workers)
        self._order = self.samples.indices(0).reshape(-1)

    @staticmethod
    def check(plan: Plan) -> None:
        """Raise PlanError if the number of functions depends on time."""
        if plan.options[PARALLELISM.name] != STATIC:
            raise PlanError("The number of functions depends on how long epochs take.", f"give --parallelism {STATIC}.")

    def advance(self) -> None:
        """Train all rounds of an epoch."""
        plan, state, samples = self.plan, self.states[0], self.samples
        epoch, updates = self.position // plan.batches, state.updates
        functions = [LocalTraining(plan, rank, epoch, state, self._tracer) for rank in range(plan.workers)]
        reference: Tensors = read_tensors(state.model)
        mean = Mean()
        for number, reporting in enumerate(self._epoch.rounds):
            for rank in reporting:
                documents = self._epoch.intervals(rank)[number]
                chosen = self._order[documents.start * DOCUMENT : documents.stop * DOCUMENT]
                images, labels = samples.images[chosen], samples.labels[chosen]
                self._losses += functions[rank].train(reference, images, labels, samples.dataset.policy)
                mean.add(rank, read_tensors(state.model))
            reference = mean.take()
        write_tensors(state.model, reference)
        for each in self.states:
            each.position += plan.batches
            each.updates = updates + functions[0].step

    def judge(self) -> Judgement:
        """Evaluate like the functions, each on its share of the test documents."""
        dataset, model = self.samples.dataset, self.states[0].model
        documents, functions = document_count(len(dataset.test_labels)), self.plan.workers
        shares = [share_of(documents, functions, function) for function in range(functions)]
        parts = [slice(share.start * DOCUMENT, share.stop * DOCUMENT) for share in shares if share]
        judged = [
            validate(model, dataset.test_images[part], dataset.test_labels[part], dataset.policy) for part in parts
        ]
        return Judgement(*weighted(judged), None)

    def turn_to(self, rank: int) -> torch.nn.Module:  # noqa: ARG002 - all have the reference
        """Return the reference model."""
        return self.states[0].model

    def _note(self, event: dict[str, Any]) -> None:
        if event["op"] == "compute":
            self._compute_s += (event["end_ns"] - event["start_ns"]) / 1e9
            self._on_minibatch()
