#!/usr/bin/env python3
"""Writes torch_schedules.inc: PyTorch's learning rates for random schedules, next to Lockstep's equivalent ones.

make_torch_schedules.py > torch_schedules.inc      (needs PyTorch; the file in the repository is from 1.13)
"""
import random
import warnings

import torch
from torch.optim import lr_scheduler as lr

warnings.simplefilter("ignore")
random.seed(17)


def rates(make, steps):
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    scheduler = make(optimizer)
    values = []
    for _ in range(steps):
        values.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return values


def case(torch_name, ours, make, steps):
    numbers = ", ".join(repr(float(value)) for value in rates(make, steps))
    print(f'{{"{torch_name}",\n schedule::{ours},\n {{{numbers}}}}},')


def flag(value):
    return "true" if value else "false"


def main():
    print("// Written by make_torch_schedules.py; PyTorch", torch.__version__)
    for _ in range(6):
        total, warmup = random.randint(8, 30), random.randint(1, 7)
        final, start = round(random.uniform(0, 0.5), 3), round(random.uniform(0.01, 0.5), 3)
        ours = f".warmup_steps = {warmup}, .total_steps = {warmup + total}, .final_factor = {final}, .warmup_start = {start}"

        def warm(make):
            return lambda o: lr.SequentialLR(o, [lr.LinearLR(o, start, 1.0, warmup), make(o)], [warmup])

        case(f"cosine, T_max {total}", f"cosine({{.total_steps = {total}, .final_factor = {final}}})",
             lambda o: lr.CosineAnnealingLR(o, total, final), total + 1)
        case(f"linear {final}", f"linear({{.total_steps = {total}, .final_factor = {final}}})",
             lambda o: lr.LinearLR(o, 1.0, final, total), total + 5)
        case("warm-up, then linear", f"linear({{{ours}}})", warm(lambda o: lr.LinearLR(o, 1.0, final, total)), warmup + total)
        case("warm-up", f"constant({{.warmup_steps = {warmup}, .warmup_start = {start}}})",
             lambda o: lr.LinearLR(o, start, 1.0, warmup), 20)
        power = random.choice([1.0, 2.0, 0.5, 1.5, round(random.uniform(0.3, 3), 3)])
        case(f"polynomial, power {power}", f"polynomial({{.power = {power}, .total_steps = {total}}})",
             lambda o: lr.PolynomialLR(o, total, power), total + 4)
        period, multiplier = random.randint(2, 7), random.randint(1, 3)
        case("restarts", f"cosine_restarts({{.period = {period}, .multiplier = {multiplier}, .final_factor = {final}}})",
             lambda o: lr.CosineAnnealingWarmRestarts(o, period, multiplier, final), 40)
        every, gamma = random.randint(1, 9), round(random.uniform(0.1, 0.95), 3)
        case("step", f"step_decay({{.every = {every}, .gamma = {gamma}}})", lambda o: lr.StepLR(o, every, gamma), 30)
        milestones = sorted(random.sample(range(1, 30), 3))
        listed = "{" + ", ".join(map(str, milestones)) + "}"
        case("multi-step", f"multi_step({{.milestones = {listed}, .gamma = {gamma}}})",
             lambda o: lr.MultiStepLR(o, milestones, gamma), 35)
        case("exponential", f"exponential({{.gamma = {gamma}}})", lambda o: lr.ExponentialLR(o, gamma), 40)
        fraction, divide, last = round(random.uniform(0.15, 0.45), 3), random.randint(2, 40), random.choice([10.0, 1e4])
        straight, three = random.random() < 0.5, random.random() < 0.5
        case("one cycle", f"one_cycle({{.total_steps = {total}, .warmup_fraction = {fraction}, .div_factor = {divide}, "
             f".final_div_factor = {last}, .linear = {flag(straight)}, .three_phase = {flag(three)}}})",
             lambda o: lr.OneCycleLR(o, 1.0, total_steps=total, pct_start=fraction, div_factor=divide,
                                     final_div_factor=last, anneal_strategy="linear" if straight else "cos",
                                     three_phase=three, cycle_momentum=False), total)
        case("chained", f"chained({{schedule::constant({{.warmup_steps = {warmup}, .warmup_start = {start}}}), "
             f"schedule::exponential({{.gamma = {gamma}}})}})",
             lambda o: lr.ChainedScheduler([lr.LinearLR(o, start, 1.0, warmup), lr.ExponentialLR(o, gamma)]), 25)
        case("sequential", f"sequential({{schedule::step_decay({{.every = {every}, .gamma = {gamma}}}), "
             f"schedule::exponential({{.gamma = {gamma}}})}}, {{{warmup + 3}}})",
             lambda o: lr.SequentialLR(o, [lr.StepLR(o, every, gamma), lr.ExponentialLR(o, gamma)], [warmup + 3]), 25)


main()
