"""Federated learning on one machine: rounds of sampling, local training, screening and aggregation.

    result = federated.run(model, clients, test={"phone": (x, y)}, rule="krum", f=2)

Everything random follows from (seed, what for, round, client), so the order in which clients train, a
resume after a crash, and clients that fail change nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from holdfast import progress
from holdfast.config import invalid_value
from holdfast.errors import InputError
from holdfast.federated.aggregation import check_enough, combine, rule_named
from holdfast.federated.datasets import as_tensors
from holdfast.federated.faults import KINDS, check_faults, drawn_fault
from holdfast.federated.limits import check
from holdfast.federated.results import FederatedRun
from holdfast.federated.state import Round, RunState
from holdfast.federated.training import (
    Data,
    FlatModel,
    Loss,
    Settings,
    Task,
    accuracy,
    as_array,
    mean_over,
    train_client,
)
from holdfast.federated.updates import Array, Arrays, Failure, Update, Weights, screen
from holdfast.identity import fingerprint

if TYPE_CHECKING:
    from holdfast.federated.contribution_ledger import Ledger
    from holdfast.federated.secure_aggregation import Privacy

STATE, LEDGER = "state.safetensors", "ledger.jsonl"
"""Names of the files in a run's folder."""
# What random numbers are for; the first part of a seed behind that of the run.
_SAMPLING, _TRAINING, _FAULTS, _PRIVACY = range(4)
Train = Callable[[nn.Module, Data, Task], Update | Failure]


def run(
    model: nn.Module,
    clients: Sequence[Any] | Mapping[str, Any],
    *,
    test: Any = None,
    rule: str = "fedavg",
    settings: Settings | None = None,
    folder: str | Path | None = None,
    resume: bool = False,
    ledger: bool = False,
    privacy: Privacy | None = None,
    proxy: Any = None,
    train: Train | None = None,
    loss: Loss = cross_entropy,
    metric: Loss = accuracy,
    **parameters: Any,
) -> FederatedRun:
    """Train a model on the data of many clients, in rounds.

    Args:
        model: any module; it is not changed.
        clients: data of each client: (inputs, targets), or a map-style data set of such pairs.
        test: (inputs, targets) of held-out data, or device -> such data.
        rule: name of the aggregation rule; see `aggregation.RULES`.
        settings: rounds, clients per round, local training; None: the defaults.
        folder: where the state is kept after each round; None: nowhere.
        resume: continue the run in the folder.
        ledger: write a contribution ledger in the folder, with keys that follow from the seed.
        privacy: secure aggregation, for the rules fedavg, fedprox and multi-krum, differential privacy, for
            the first two, and models without buffers (BatchNorm); clients then count alike, whatever their
            examples.
        proxy: data of the server itself, from which the rule deepsa learns which updates are reliable.
        train: called with the module (which has the global weights), the client's data and the `Task`;
            returns the `Update`, or a `Failure` that says why not. None: SGD with what the rule adds.
        loss: mean loss of a batch, from outputs and targets.
        metric: mean score of a batch; higher is better.
        parameters: of the rule, such as ``f=2``.

    Raises:
        InputError: unknown or invalid settings; ``too-few-updates`` if a round cannot have enough clients;
            ``output-exists`` or ``conflict`` about the folder; ``no-data`` if no round had enough usable
            updates.
    """
    settings = settings or Settings()
    folder = None if folder is None else Path(folder)
    engine = Engine(
        model, clients, test, rule, settings, train, loss, metric, privacy, proxy, parameters
    )
    # A module's dropout draws from torch's generator: the caller's stays as it was.
    threads = torch.get_num_threads()
    torch.set_num_threads(settings.threads)
    try:
        with torch.random.fork_rng(devices=[]):
            return engine.run(folder, resume, ledger)
    finally:
        torch.set_num_threads(threads)
        if engine.ledger is not None:
            engine.ledger.close()


class Engine:
    """What does not change between rounds; its arguments are those of `run`.

    `run` plays all rounds here. Where clients are elsewhere, whoever reaches them calls `begin`, for each
    round `sampled`, `task` and `play_round`, whose `train` then hands over their answers, and `result`.
    """

    def __init__(
        self,
        model: nn.Module,
        clients: Sequence[Any] | Mapping[str, Any],
        test: Any,
        rule: str,
        settings: Settings,
        train: Train | None,
        loss: Loss,
        metric: Loss,
        privacy: Privacy | None,
        proxy: Any,
        parameters: Mapping[str, Any],
    ) -> None:
        self.model = FlatModel(model)
        vector = self.model.vector
        named = clients if isinstance(clients, Mapping) else dict(enumerate(clients))
        self.clients = {str(n): as_tensors(data, vector, str(n)) for n, data in named.items()}
        if len(self.clients) < len(named):
            problem, expected = "two clients have the same name as text", "names that differ"
            raise invalid_value(problem, None, "clients", list(named), expected)
        devices = test if isinstance(test, Mapping) else {} if test is None else {"all": test}
        tests = {name: as_tensors(data, vector, name) for name, data in devices.items()}
        self.test = {name: data for name, data in tests.items() if len(data[0])}
        self.untested = [name for name in tests if name not in self.test]
        known = {"learning_rate": settings.learning_rate, "population": len(self.clients)}
        found, self.parameters = rule_named(rule, parameters, known)
        self.needs = found.needs
        self.rule, self.settings, self.train, self.given = rule, settings, train, parameters
        self.loss, self.metric = loss, metric
        self.ledger: Ledger | None = None
        self.privacy = privacy
        self.proxy = None if proxy is None else as_tensors(proxy, vector, "proxy")
        check(settings)
        check_faults(settings.faults)
        self.asked = min(settings.per_round, len(self.clients))
        check_enough(rule, self.asked, self.parameters.get("f", 0))
        if privacy is not None:
            privacy.check(self.rule, self.asked)
            buffers = [n for n, _ in self.model.module.named_buffers() if n in self.model.others]
            if buffers:
                raise InputError(
                    "clipping and noise do not suit buffers, such as BatchNorm's variance",
                    code="unsupported",
                    place="model",
                    found=", ".join(buffers),
                    expected="a model without buffers",
                    remedy="use GroupNorm or LayerNorm; register constants with persistent=False",
                )

    def run(self, folder: Path | None, resume: bool, ledger: bool) -> FederatedRun:
        """All rounds that the folder does not have yet."""
        state = self.begin(folder, resume, ledger)
        total = self.settings.rounds
        with progress.track("training", total, "rounds") as bar:
            bar.advance(len(state.history))
            while len(state.history) < total:
                self.play_round(state)
                bar.advance(1)
        return self.result(state)

    def begin(self, folder: Path | None, resume: bool, ledger: bool) -> RunState:
        """The state before the first round that the folder does not have yet."""
        state = RunState(self.model.weights())
        self.folder = folder
        self.plan: dict[str, str] = {}
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self.plan = self._plan(ledger)
            path = folder / STATE
            if path.exists() and not resume:
                problem, remedy = "a run is in this folder", "resume it, or name another folder"
                raise InputError(problem, code="output-exists", path=path, remedy=remedy)
            if path.exists():
                state = RunState.load(path, self.plan)
        if ledger:
            from holdfast.federated.contribution_ledger import Ledger, simulated_key

            if folder is None:
                problem, expected = "a ledger needs a folder", "the folder of the run"
                raise invalid_value(problem, None, "folder", folder, expected)
            seed = self.settings.seed
            keys = {name: simulated_key(seed, name) for name in self.clients}
            after = len(state.history)
            self.ledger = Ledger(folder / LEDGER, simulated_key(seed, ""), keys, after)
        if self.rule == "deepsa" and self.proxy is not None and not state.rule:
            from holdfast.federated.deepsa import train_classifier

            task = self.task(state, 0, 0, "")
            state.rule = {"deepsa": train_classifier(self.model, self.proxy, task)}
        return state

    def result(self, state: RunState) -> FederatedRun:
        """The answer after the last round.

        Raises:
            InputError: ``no-data`` if no round had enough usable updates.
        """
        if all(row.skipped for row in state.history):
            failed = [f"{f['client']}: {f['code']}, {f['reason']}" for f in state.failures]
            raise InputError(
                "no round had enough usable updates",
                code="no-data",
                found=state.history[-1].skipped,
                remedy=f"look at client {failed[0]}" if failed else None,
            )
        privacy = None
        if self.privacy is not None:
            from holdfast.federated.secure_aggregation import privacy_loss

            epsilon = privacy_loss(self.privacy, len(state.history))
            privacy = {**asdict(self.privacy), "epsilon": epsilon}
        return FederatedRun(
            rule=self.rule,
            parameters=self.given,
            clients=len(self.clients),
            untested=self.untested,
            history=state.history,
            failures=state.failures,
            weights=state.weights,
            folder=self.folder,
            privacy=privacy,
        )

    def _plan(self, ledger: bool) -> dict[str, str]:
        """Hashes of all that determines a run; only the number of rounds may change."""
        parts = {
            "settings": asdict(replace(self.settings, rounds=0)),
            "privacy": self.privacy and asdict(self.privacy),
            "ledger": ledger,
            "rule": [self.rule, self.parameters],
            "clients": self.clients,
            "test data": self.test,
            "proxy data": self.proxy,
            # `train` and `eval` are called before each use.
            "model": self.model.module.train(),
            "training function": self.train,
            "loss": self.loss,
            "metric": self.metric,
        }
        return {name: fingerprint(part) for name, part in parts.items()}

    def sampled(self, number: int) -> list[int]:
        """Places of the clients that are asked in a round, from 1."""
        rng = np.random.default_rng([self.settings.seed, _SAMPLING, number])
        return sorted(rng.choice(len(self.clients), self.asked, replace=False).tolist())

    def play_round(self, state: RunState) -> None:
        """One round more; the state, and its file, have the result."""
        number = len(state.history) + 1
        self.model.load(state.weights)
        # 1. Ask some clients.
        names, asked = list(self.clients), self.sampled(number)
        updates, failures = [], []
        for place in asked:
            answer = self._ask(state, number, place, names[place])
            (updates if isinstance(answer, Update) else failures).append(answer)
        # 2. Aggregate what can be used; too few updates leave the weights as they are.
        usable, excluded = screen(
            state.weights, updates, self.settings.largest_norm, self.model.others, self.needs
        )
        before, skipped = state.weights, ""
        try:
            if self.privacy is None:
                result, state.rule = combine(
                    self.rule, before, usable, state.rule, self.parameters, self.model.others
                )
                # A mean of equal numbers may differ from them in the last bit.
                state.weights = {**result, **{name: before[name] for name in self.model.frozen}}
            else:
                state.weights, outside = self._secure(self.privacy, before, usable, number)
                failures += outside
        except InputError as error:
            if error.code not in ("too-few-updates", "not-finite", "norm"):
                raise
            skipped = f"{error.found}, expected {error.expected}"
        for update in usable:
            if update.control is not None and not skipped:
                before_control = state.controls.get(update.client, 0.0)
                state.controls[update.client] = before_control + update.control
        # 3. Remember what happened.
        if self.ledger is not None:
            used = [] if skipped else usable
            self.ledger.record(number, [names[place] for place in asked], used)
        failures += excluded
        state.failures += [{"round": number, **asdict(failure)} for failure in failures]
        last = number == self.settings.rounds
        due = number % self.settings.evaluate_every == 0
        sent = sum(array.nbytes for array in before.values())
        sent += self.model.vector.nbytes if self.needs == "control" else 0
        up = sum(update.nbytes for update in updates)
        if self.privacy is not None:  # a share of 64-bit integers to each server
            up = 8 * self.privacy.servers * len(self.model.vector) * len(updates)
        row = Round(
            number=number,
            loss=_mean(usable, "loss"),
            used=0 if skipped else len(usable),
            bytes_up=up,
            bytes_down=sent * len(asked),
            transform=_mean(usable, "transform", weighted=False),
            averaging=_mean(usable, "averaging", weighted=False),
            skipped=skipped,
            accuracy=self._accuracy(state) if due or last else None,
        )
        state.history.append(row)
        if self.folder is not None:
            state.save(self.folder / STATE, self.plan)

    def _secure(
        self, privacy: Privacy, before: Arrays, usable: Sequence[Update], number: int
    ) -> tuple[Arrays, list[Failure]]:
        """The global weights moved by the mean step, of which servers see nothing but the sum."""
        from holdfast.federated.secure_aggregation import secure_mean

        def trained(weights: Weights) -> Array:
            self.model.load(weights)
            return as_array(self.model.vector).astype(np.float64)

        steps = {update.client: trained(update.weights) for update in usable}
        start = trained(before)
        steps = {client: vector - start for client, vector in steps.items()}
        seed = self.settings.seed, _PRIVACY, number
        mean, outside = secure_mean(steps, privacy, seed, f=self.parameters.get("f"))
        # Whatever is not trained stays as it is.
        self.model.vector.copy_(torch.from_numpy(start + mean))
        return self.model.weights(), outside

    def _ask(self, state: RunState, number: int, place: int, name: str) -> Update | Failure:
        """The update of one client, or why there is none."""
        seed = self.settings.seed
        rng = np.random.default_rng([seed, _FAULTS, number, place])
        fault = drawn_fault(self.settings.faults, rng)
        if fault == "drop":
            return Failure(name, "no-answer", "did not answer (injected)")
        task = self.task(state, number, place, name)
        self.model.reset()
        try:
            if self.train is None:
                update = train_client(self.model, self.clients[name], task)
            else:
                update = self.train(self.model.module, self.clients[name], task)
        except InputError:  # the settings do not suit the model or data: every client would fail
            raise
        except Exception as error:
            return Failure(name, "error", f"{type(error).__name__}: {error}")
        if isinstance(update, Failure):
            return replace(update, client=name)
        if not isinstance(update, Update):
            return Failure(name, "error", f"train returned {type(update).__name__}, not an Update")
        shape = getattr(update.control, "shape", None)
        if shape and task.control is not None and shape != task.control[0].shape:
            return Failure(name, "shape", f"control is not {list(task.control[0].shape)}")
        changed = update if fault is None else KINDS[fault](update, state.weights)
        return replace(changed, client=name)

    def task(self, state: RunState, number: int, place: int, name: str) -> Task:
        """What one client is asked to do in a round."""
        control = None
        if self.needs == "control":
            zeros = np.zeros(len(self.model.vector), np.float32)
            control = state.rule.get("control", zeros), state.controls.get(name, zeros)
        loss_ema = state.rule.get("loss_ema")
        return Task(
            settings=self.settings,
            seed=(self.settings.seed, _TRAINING, number, place),
            local=self.parameters,
            loss_ema=None if loss_ema is None else float(loss_ema),
            control=control,
            loss=self.loss,
        )

    def _accuracy(self, state: RunState) -> dict[str, float]:
        """Score of the global weights on each device's test data."""
        self.model.load(state.weights)
        scores = {}
        for name, data in self.test.items():
            try:
                scores[name] = mean_over(self.model.module, data, self.metric)
            except InputError:
                raise
            except Exception as error:  # of the user's model or metric
                found, expected = f"{type(error).__name__}: {error}", "what the model takes"
                place = f"test data of {name}"
                raise invalid_value("the test failed", None, place, found, expected) from error
        return scores


def _mean(updates: Sequence[Update], metric: str, weighted: bool = True) -> float | None:
    """Mean of a metric over the updates that have it, weighted by examples."""
    known = [update for update in updates if metric in update.metrics]
    shares = [update.examples if weighted else 1 for update in known]
    values = [update.metrics[metric] for update in known]
    return float(np.average(values, weights=shares)) if known else None
