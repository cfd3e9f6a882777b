// Everything: the engine, and distributed training on LibTorch. Link lockstep::ddp.
#pragma once

// The engine, without torch: errors and deadlines, communicators for plain memory, stores.
#include "lockstep/engine.h"

// Start a job: join its default process group, or start local processes without a launcher.
#include "lockstep/ddp/init.h"
#include "lockstep/ddp/spawn.h"

// Collectives on tensors, those that autograd differentiates, and those on strings; process groups and subgroups.
#include "lockstep/ddp/collectives.h"
#include "lockstep/ddp/functional.h"
#include "lockstep/ddp/objects.h"
#include "lockstep/ddp/process_group.h"
#include "lockstep/ddp/subgroups.h"

// DistributedDataParallel, for modules of torch::nn and TorchScript, and the synchronizer below it.
#include "lockstep/ddp/ddp_options.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/gradient_synchronizer.h"
#include "lockstep/ddp/model_view.h"
#include "lockstep/ddp/output_tensors.h"
#include "lockstep/ddp/wrapped_module.h"

// Communication hooks: compress gradients, or replace their all-reduce.
#include "lockstep/ddp/comm_hook.h"
#include "lockstep/ddp/hooks.h"

// Layers that compute over all ranks.
#include "lockstep/ddp/sync_batch_norm.h"

// Data: each rank's shard of a dataset.
#include "lockstep/checkpoint/distributed_sampler_state.h"
#include "lockstep/ddp/distributed_sampler.h"

// Optimizers: fused steps, learning rates, sharded state (ZeRO-1), gradient clipping, model averaging.
#include "lockstep/ddp/clip_grad.h"
#include "lockstep/ddp/fused_optimizers.h"
#include "lockstep/ddp/learning_rate.h"
#include "lockstep/ddp/model_averaging.h"
#include "lockstep/ddp/zero_redundancy_optimizer.h"

// Metrics over the samples of all ranks.
#include "lockstep/ddp/metrics.h"

// Snapshots: stop a run, and resume it bit for bit.
#include "lockstep/checkpoint/skipped_snapshot.h"
#include "lockstep/checkpoint/snapshot.h"

// Weights to and from Python: safetensors and torch.save files.
#include "lockstep/ddp/weights.h"

// Elastic training: lost processes are replaced while the others continue.
#include "lockstep/elastic/run.h"

// Other engines: Gloo, NCCL, MPI, or a c10d engine of your own.
#include "lockstep/ddp/backends.h"

// DataParallel: one process, one thread for each replica. For comparison with DDP.
#include "lockstep/ddp/data_parallel.h"
