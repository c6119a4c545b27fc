"""Makes the golden values in this folder: the formulas of the losses, in float64 with automatic differentiation.

    python tests/golden/losses/generate.py        (needs torch, numpy and safetensors; a user of Manta needs none of them)

The form is that of golden_losses' input: index.json, GROUP/CASE.json, GROUP/CASE.safetensors.
"""

import itertools
import json
import math
import pathlib

import numpy as np
import torch
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).parent
ROWS, LENGTH, VOCABULARY = 4, 8, 11
EPSILON = 1e-8
index = []


def write(group, case, hparams, outputs, tensors=None, **more):
    folder = HERE / group
    folder.mkdir(exist_ok=True)
    record = {"case": case, "group": group, "hparams": hparams, "outputs": outputs, **more}
    if tensors:
        arrays = {name: np.ascontiguousarray(value) for name, value in tensors.items()}
        save_file(arrays, folder / f"{case}.safetensors")
        record["tensor_file"] = f"{case}.safetensors"
        record["tensors"] = {
            name: {"dtype": str(a.dtype), "shape": list(a.shape)} for name, a in arrays.items()
        }
    (folder / f"{case}.json").write_text(json.dumps(record, indent=1) + "\n")
    index.append({"group": group, "case": case})


def batch(seed):
    rng = np.random.default_rng(seed)
    mask = np.zeros((ROWS, LENGTH), np.float32)
    lengths = [8, 7, 5, 8]
    for row, length in enumerate(lengths):
        mask[row, 2:length] = 1
    mask[0, 4] = 0  # a hole
    inputs = {
        "logits": (1.5 * rng.standard_normal((ROWS, LENGTH, VOCABULARY))).astype(np.float32),
        "input_ids": rng.integers(0, VOCABULARY, (ROWS, LENGTH)),
        "input_lengths": np.array(lengths),
        "token_mask": mask,
        "sample_mask": np.array([1, 1, 0, 1], np.float32),
        "advantages": np.repeat(rng.standard_normal((ROWS, 1)), LENGTH, 1).astype(np.float32),
        "rewards": np.array([1, 0, 1, 1], np.float32),
    }
    current = torch.log_softmax(torch.tensor(inputs["logits"], dtype=torch.float64), -1)
    current = torch.gather(current[:, :-1], -1, torch.tensor(inputs["input_ids"])[:, 1:, None])[..., 0].numpy()
    for name, spread in (("prev_logprobs", 0.4), ("generation_logprobs", 0.4), ("reference_policy_logprobs", 0.6)):
        values = np.zeros((ROWS, LENGTH), np.float32)
        values[:, 1:] = current + spread * rng.standard_normal(current.shape)
        inputs[name] = np.minimum(values, -1e-3).astype(np.float32)
        inputs[name][:, 0] = 0
    return inputs


def default_loss_fn():
    return {
        "disable_ppo_ratio": False,
        "token_level_loss": True,
        "sequence_level_importance_ratios": False,
        "ratio_clip_min": 0.2,
        "ratio_clip_max": 0.2,
        "ratio_clip_c": None,
        "reference_policy_kl_penalty": 0.0,
        "reference_policy_kl_type": "k3",
        "kl_input_clamp_value": 20.0,
        "kl_output_clamp_value": 10.0,
        "use_kl_in_reward": False,
        "use_importance_sampling_correction": False,
        "truncated_importance_sampling_type": None,
        "truncated_importance_sampling_ratio": None,
        "truncated_importance_sampling_ratio_min": None,
        "use_on_policy_kl_approximation": False,
        "force_on_policy_ratio": False,
        "use_cispo": False,
        "positive_example_nll_weight": 0.0,
    }


def kl_terms(kind, log_ratio):
    return {"k1": -log_ratio, "k2": log_ratio**2 / 2, "k3": torch.exp(log_ratio) - 1 - log_ratio}[kind]


def clamp(x, bound):
    return x if bound is None else torch.clamp(x, -bound, bound)


def clipped_pg(inputs, o, dtype):
    t = {name: torch.tensor(value).to(dtype) for name, value in inputs.items() if name != "input_ids"}
    logits = t["logits"].clone().requires_grad_(True)
    ids = torch.tensor(inputs["input_ids"])
    current = torch.gather(torch.log_softmax(logits[:, :-1], -1), -1, ids[:, 1:, None])[..., 0]
    current.retain_grad()
    token_mask, sample = t["token_mask"][:, 1:], t["sample_mask"]
    mask = token_mask * sample[:, None]
    tokens, sequences = mask.sum(), sample.sum()
    advantages, generation = t["advantages"][:, 1:], t["generation_logprobs"][:, 1:]
    previous = current.detach() if o["force_on_policy_ratio"] else t["prev_logprobs"][:, 1:]
    reference = t["reference_policy_logprobs"][:, 1:]
    by_tokens = lambda x: (x * mask).sum() / (tokens + EPSILON)
    sequence_mean = lambda x: (x * token_mask).sum(-1) / (token_mask.sum(-1) + EPSILON)

    def reduce(x):
        if o["token_level_loss"]:
            return by_tokens(x)
        return (sequence_mean(x) * sample).sum() / (sequences + EPSILON)

    if o["force_on_policy_ratio"]:
        ratio = clipped = torch.exp(current - current.detach())
    elif o["disable_ppo_ratio"]:
        ratio = clipped = current
    else:
        log_ratio = current - previous
        if o["sequence_level_importance_ratios"]:
            log_ratio = sequence_mean(log_ratio)[:, None].expand_as(current)
        ratio = torch.exp(log_ratio)
        clipped = torch.clamp(ratio, 1 - o["ratio_clip_min"], 1 + o["ratio_clip_max"])
    if o["use_cispo"]:
        loss = -advantages * clipped.detach() * current
    else:
        loss = torch.maximum(-advantages * ratio, -advantages * clipped)
    if o["ratio_clip_c"] is not None:
        loss = torch.where(advantages < 0, torch.minimum(loss, -advantages * o["ratio_clip_c"]), loss)

    if o["sequence_level_importance_ratios"]:
        weight = torch.exp(((previous - generation) * mask).sum(-1))[:, None].expand_as(current)
    else:
        weight = torch.exp(previous - generation)
    low, high = o["truncated_importance_sampling_ratio_min"] or 0.0, o["truncated_importance_sampling_ratio"]
    kind = o["truncated_importance_sampling_type"]
    metrics = {}
    if kind in ("tis", "icepop"):
        outside = (weight > high) | (weight < low)
        metrics["is_oob_ratio"] = by_tokens(outside.to(dtype))
        weight = torch.clamp(weight, low, high) if kind == "tis" else torch.where(outside, 0.0, weight)
    elif kind == "seq-mask-tis":
        gate = torch.exp(sequence_mean(previous - generation))
        outside = (gate > high) | (gate < low)
        metrics["is_oob_ratio"] = (outside * sample).sum() / (sequences + EPSILON)
        weight = torch.where(outside[:, None], 0.0, weight)
    applied = weight.detach() if o["use_importance_sampling_correction"] else 1.0
    actor = reduce(applied * loss)

    kl = torch.zeros((), dtype=dtype)
    if o["reference_policy_kl_penalty"] and not o["use_kl_in_reward"]:
        kappa = torch.exp(current - (generation if o["use_on_policy_kl_approximation"] else current.detach()))
        raw = reference - current
        bound = o["kl_input_clamp_value"]
        if bound is not None:
            kappa = torch.where(raw.abs() > bound, kappa.detach(), kappa)
        kl = reduce(clamp(kappa * kl_terms(o["reference_policy_kl_type"], clamp(raw, bound)), o["kl_output_clamp_value"]))
    correct = mask * (t["rewards"] > 0)[:, None]
    nll = (-current * correct).sum() / (correct.sum() + EPSILON) if o["positive_example_nll_weight"] else torch.zeros(())
    total = actor + o["reference_policy_kl_penalty"] * kl + o["positive_example_nll_weight"] * nll
    total.backward()

    mixture = torch.logaddexp(previous, generation) - math.log(2)
    metrics |= {
        "loss": total,
        "probs_ratio": by_tokens(ratio),
        "probs_ratio_clamped": by_tokens(clipped),
        "probs_ratio_min": ratio[mask > 0].min(),
        "probs_ratio_max": ratio[mask > 0].max(),
        "probs_ratio_clamped_min": clipped[mask > 0].min(),
        "probs_ratio_clamped_max": clipped[mask > 0].max(),
        "kl_penalty": kl,
        "token_mult_prob_error": by_tokens(torch.exp((generation - previous).abs())),
        "gen_kl_error": by_tokens(kl_terms(o["reference_policy_kl_type"], previous - generation)),
        "policy_kl_error": by_tokens(kl_terms(o["reference_policy_kl_type"], generation - previous)),
        "js_divergence_error": by_tokens(
            0.5 * (kl_terms("k3", previous - mixture) + kl_terms("k3", generation - mixture))
        ),
        "sampling_importance_ratio": (weight[:, 0] * sample).sum() / (sequences + EPSILON)
        if o["sequence_level_importance_ratios"]
        else by_tokens(weight),
        "num_valid_samples": sequences,
        "approx_entropy": -by_tokens(torch.exp(current - generation) * current),
        "positive_nll_loss": nll,
    }
    scalars = {"global_valid_toks": tokens.item(), "global_valid_seqs": sequences.item()}
    return total.item(), {k: float(v) for k, v in metrics.items()}, current.grad.numpy(), logits.grad.numpy(), scalars


def make_clipped_pg():
    cases = {
        "clip": {},
        "dapo": {"ratio_clip_max": 0.28, "ratio_clip_c": 3.0},
        "dual_clip_tight": {"ratio_clip_c": 1.05, "ratio_clip_max": 0.5},
        "kl_k1_weighted": {
            "reference_policy_kl_penalty": 0.1,
            "reference_policy_kl_type": "k1",
            "use_on_policy_kl_approximation": True,
        },
        "kl_k2_clamped": {
            "reference_policy_kl_penalty": 0.1,
            "reference_policy_kl_type": "k2",
            "kl_input_clamp_value": 0.5,
            "kl_output_clamp_value": 0.1,
        },
        "kl_k3_sequences": {"reference_policy_kl_penalty": 0.1, "token_level_loss": False},
        "kl_unclamped": {
            "reference_policy_kl_penalty": 0.05,
            "kl_input_clamp_value": None,
            "kl_output_clamp_value": None,
        },
        "kl_in_reward": {"reference_policy_kl_penalty": 0.05, "use_kl_in_reward": True},
        "tis": {
            "use_importance_sampling_correction": True,
            "truncated_importance_sampling_type": "tis",
            "truncated_importance_sampling_ratio": 1.2,
        },
        "icepop": {
            "use_importance_sampling_correction": True,
            "truncated_importance_sampling_type": "icepop",
            "truncated_importance_sampling_ratio": 1.5,
            "truncated_importance_sampling_ratio_min": 0.6,
            "token_level_loss": False,
        },
        "seq_mask_tis": {
            "use_importance_sampling_correction": True,
            "truncated_importance_sampling_type": "seq-mask-tis",
            "truncated_importance_sampling_ratio": 1.05,
            "truncated_importance_sampling_ratio_min": 0.8,
        },
        "gspo": {"sequence_level_importance_ratios": True, "token_level_loss": False},
        "gspo_corrected": {
            "sequence_level_importance_ratios": True,
            "token_level_loss": False,
            "use_importance_sampling_correction": True,
            "reference_policy_kl_penalty": 0.02,
        },
        "cispo": {"use_cispo": True, "ratio_clip_min": 1.0, "ratio_clip_max": 0.4},
        "reinforce": {"disable_ppo_ratio": True, "use_importance_sampling_correction": True},
        "on_policy": {"force_on_policy_ratio": True, "use_importance_sampling_correction": True},
        "positive_nll": {"positive_example_nll_weight": 0.2},
    }
    for seed, (case, changes) in enumerate(cases.items()):
        inputs = batch(seed)
        options = default_loss_fn() | changes
        tensors = {f"in.{name}": value for name, value in inputs.items()}
        loss, metrics, d_logprobs, d_logits, scalars = clipped_pg(inputs, options, torch.float64)
        tensors["grad64.next_token_logprobs"], tensors["grad64.logits"] = d_logprobs, d_logits
        tensors["grad.next_token_logprobs"] = d_logprobs.astype(np.float32)
        tensors["grad.logits"] = d_logits.astype(np.float32)
        outputs = {"loss": loss, "metrics": metrics, "loss_f64": loss, "metrics_f64": metrics}
        write("clipped_pg", case, {"loss_fn": options}, outputs, tensors, scalars=scalars)


def make_sft():
    for case, sizes in (("nll", None), ("nll_microbatches", [1, 2, 1])):
        inputs = batch(100)
        logits = torch.tensor(inputs["logits"], dtype=torch.float64).requires_grad_(True)
        ids = torch.tensor(inputs["input_ids"])
        current = torch.gather(torch.log_softmax(logits[:, :-1], -1), -1, ids[:, 1:, None])[..., 0]
        mask = torch.tensor(inputs["token_mask"][:, 1:] * inputs["sample_mask"][:, None], dtype=torch.float64)
        loss = -(current * mask).sum() / (mask.sum() + EPSILON)
        loss.backward()
        tensors = {f"in.{name}": inputs[name] for name in ("logits", "input_ids", "input_lengths", "token_mask", "sample_mask")}
        tensors["grad64.logits"], tensors["grad.logits"] = logits.grad.numpy(), logits.grad.numpy().astype(np.float32)
        metrics = {"loss": loss.item(), "num_unmasked_tokens": mask.sum().item(), "num_valid_samples": 3.0}
        outputs = {"loss": loss.item(), "loss_f64": loss.item(), "metrics": metrics}
        hparams = {"microbatch_sizes": sizes} if sizes else {"sft": {}}
        scalars = {"global_valid_toks": mask.sum().item(), "global_valid_seqs": 3.0}
        write("sft", case, hparams, outputs, tensors, scalars=scalars)


def make_advantages():
    rng = np.random.default_rng(7)
    prompts = np.array([[1], [2], [1], [1], [2], [1], [3], [3], [3], [3]])
    rewards = rng.standard_normal(10).astype(np.float32)
    rewards[6:] = 0.1  # a group without spread, whose value is not exact in binary
    mask = np.ones((10, 3), np.float32)
    for leave_one_out, normalize in itertools.product((True, False), (True, False)):
        advantage = np.zeros(10)
        for i in range(10):
            others = [j for j in range(10) if prompts[j, 0] == prompts[i, 0] and not (leave_one_out and i == j)]
            values = rewards[others].astype(np.float64)
            advantage[i] = rewards[i] - values.mean()
            spread = values.std(ddof=1) if len(values) > 1 and values.max() > values.min() else 0.0
            if normalize and spread > 0:
                advantage[i] /= spread + 1e-6
        case = f"grpo_{'loo' if leave_one_out else 'plain'}_{'norm' if normalize else 'raw'}"
        estimator = {"name": "grpo", "normalize_rewards": normalize, "use_leave_one_out_baseline": leave_one_out}
        tensors = {"in.prompt_ids": prompts, "in.rewards": rewards, "in.mask": mask}
        tensors["out.advantages"] = np.repeat(advantage[:, None], 3, 1)
        write("advantages", case, {"grpo": {"adv_estimator": estimator}}, {}, tensors)


def make_packing():
    rng = np.random.default_rng(3)
    lengths = [int(x) for x in rng.integers(1, 40, 24)]
    bins, room = [], []
    for item in sorted(range(len(lengths)), key=lambda i: (-lengths[i], -i)):
        fits = [b for b in range(len(bins)) if lengths[item] <= room[b]]
        if fits:
            bins[fits[0]].append(item)
            room[fits[0]] -= lengths[item]
        else:
            bins.append([item])
            room.append(50 - lengths[item])
    result = {"min_bin_count": None, "bin_count_multiple": None, "bins": bins}
    outputs = {"sequence_lengths": lengths, "results": {"first_fit_decreasing": [result]}}
    write("packing", "first_fit_decreasing", {"bin_capacity": 50}, outputs)


def make_schedule():
    base = torch.optim.lr_scheduler
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=3e-4)
    schedule = base.SequentialLR(
        optimizer,
        [
            base.LinearLR(optimizer, start_factor=0.1, end_factor=1.0, total_iters=5),
            base.CosineAnnealingLR(optimizer, T_max=20, eta_min=1e-5),
        ],
        milestones=[5],
    )
    rates = []
    for _ in range(40):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    names = "torch.optim.lr_scheduler."
    entries = [
        {"name": names + "LinearLR", "kwargs": {"start_factor": 0.1, "end_factor": 1.0, "total_iters": 5}},
        {"name": names + "CosineAnnealingLR", "kwargs": {"T_max": 20, "eta_min": 1e-5}},
        {"milestones": [5]},
    ]
    hparams = {"policy": {"optimizer": {"kwargs": {"lr": 3e-4}}, "scheduler": entries}}
    write("lr_schedule", "linear_cosine", hparams, {"lr": rates}, tolerance={"rtol": 1e-9})


if __name__ == "__main__":
    make_clipped_pg()
    make_sft()
    make_advantages()
    make_packing()
    make_schedule()
    (HERE / "index.json").write_text(json.dumps(index, indent=1) + "\n")
