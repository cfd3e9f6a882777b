// DDP with parameters that are not on the CPU: on a device in software whose memory the host cannot access.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <iostream>

#include "ddp/fake_device.h"
#include "ddp/sync/buckets/bucket.h"
#include "ddp/testing/test_models.h"
#include "lockstep/communicator/communicator.h"
#include "support/process_set.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using testing::Group;
using ::testing::HasSubstr;
using testing::kFake;
using ::testing::UnorderedElementsAre;

constexpr int kRanks = 2;

// LibTorch 1.13 does not let modules move to a device in software: they are made there.
struct PlacedLinearImpl : torch::nn::Module {
  PlacedLinearImpl(const torch::nn::Linear& from, at::Device device) {
    weight = register_parameter("weight", from->weight.detach().clone().to(device));
    bias = register_parameter("bias", from->bias.detach().clone().to(device));
  }
  at::Tensor forward(const at::Tensor& x) { return torch::linear(x.to(weight.device()), weight, bias); }
  at::Tensor weight, bias;
};
TORCH_MODULE(PlacedLinear);

// testing::Net with its first and last layer on one device, and the middle one on another or the same.
struct PlacedNetImpl : torch::nn::Module {
  PlacedNetImpl(const testing::Net& net, at::Device ends, at::Device centre) {
    first = register_module("first", PlacedLinear(net->first, ends));
    middle = register_module("middle", PlacedLinear(net->middle, centre));
    last = register_module("last", PlacedLinear(net->last, ends));
  }
  at::Tensor forward(const at::Tensor& x) { return last(torch::tanh(middle(torch::tanh(first(x))))); }
  PlacedLinear first{nullptr}, middle{nullptr}, last{nullptr};
};
TORCH_MODULE(PlacedNet);

PlacedNet net_on(at::Device device, std::uint64_t seed = 1) {
  return PlacedNet(testing::net_with_seed(seed), device, device);
}

// Every rank has a device of its own, as it would have a GPU.
at::Device device_of(const Group& group) { return {kFake, static_cast<at::DeviceIndex>(2 * group->rank())}; }

// Runs `body` on ranks with a device.
void on_devices(const std::function<void(const Group&, at::Device)>& body) {
  testing::install_fake_device();
  testing::run_ranks(kRanks, [&](const Group& cpu) { body(testing::group_for_fake_device(cpu), device_of(cpu)); });
}

TEST(DeviceDdp, TheHostCannotAccessTheDevicesMemory) {
  testing::install_fake_device();
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const at::Tensor tensor = torch::ones({4}, at::Device(kFake, 0));
  EXPECT_DEATH(static_cast<void>(*static_cast<volatile float*>(tensor.data_ptr())), "");
  EXPECT_EQ(tensor.sum().cpu().item<float>(), 4);
}

TEST(DeviceDdp, ModelsOnDifferentDevicesAreReportedOnAllRanks) {
  testing::install_fake_device();
  const std::vector<std::string> errors = testing::errors_of_ranks(kRanks, [](const Group& cpu) {
    const Group group = testing::group_for_fake_device(cpu);
    PlacedNet net = net_on(group->rank() == 0 ? at::Device(at::kCPU) : at::Device(kFake, 0));
    DistributedDataParallel<PlacedNet> ddp(net, {.process_group = group});
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("type Float, on privateuseone, with gradient"));
}

TEST(DeviceDdp, AGroupWithoutAnEngineForTheDeviceIsReportedBeforeAnythingIsSent) {
  testing::install_fake_device();
  for (const std::string& error : testing::errors_of_ranks(kRanks, [](const Group& group) {
         PlacedNet net = net_on(device_of(group), static_cast<std::uint64_t>(group->rank()));
         DistributedDataParallel<PlacedNet> ddp(net, {.process_group = group});
       })) {
    EXPECT_THAT(error, HasSubstr("parameter \"first.weight\""));
    EXPECT_THAT(error, HasSubstr("takes CPU tensors, this one is on privateuseone:"));
  }
}

// Trains on devices of the rank's own and alone on the CPU with the whole batch, and compares. The backward of every
// device runs on a thread of its own, as a GPU's does.
int train_on(at::DeviceIndex ends, at::DeviceIndex centre) {
  torch::set_num_threads(1);
  testing::install_fake_device();
  ProcessGroupScope job;
  const Group group = testing::group_for_fake_device(job.group());
  const at::Device device(kFake, ends);
  // Different values on every rank: all must get rank 0's.
  PlacedNet net(testing::net_with_seed(static_cast<std::uint64_t>(1 + job.rank())), device, at::Device(kFake, centre));
  testing::Net alone = testing::net_with_seed(1);
  DistributedDataParallel<PlacedNet> ddp(net, {.process_group = group, .bucket_cap_mb = 0.01});
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  torch::optim::SGD optimizer_alone(alone->parameters(), 0.1);
  const auto loss = [](const at::Tensor& output, const at::Tensor& target) {
    return (output - target).square().mean();
  };
  for (int step = 0; step < 6; ++step) {
    optimizer.zero_grad();
    optimizer_alone.zero_grad();
    loss(ddp(testing::share(testing::inputs(24), group)), testing::share(testing::targets(24), group).to(device))
        .backward();
    loss(alone->forward(testing::inputs(24)), testing::targets(24)).backward();
    optimizer.step();
    optimizer_alone.step();
  }
  ddp.verify_in_sync();
  for (std::size_t i = 0; i < net->parameters().size(); ++i) {
    const at::Tensor of_device = net->parameters()[i];
    if (of_device.device().type() != kFake || !torch::allclose(of_device.cpu(), alone->parameters()[i], 1e-4, 1e-6)) {
      std::cerr << "parameter " << i << " on " << of_device.device() << " differs from the CPU's\n";
      return 1;
    }
  }
  return 0;
}
LOCKSTEP_PROCESS_ROLE(train_on_one_device) { return train_on(0, 0); }
LOCKSTEP_PROCESS_ROLE(train_on_two_devices) { return train_on(2, 1); }

class DeviceTraining : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, DeviceTraining, ::testing::Values("train_on_one_device", "train_on_two_devices"));

TEST_P(DeviceTraining, EqualsThatOfOneProcessOnTheCpu) {
  for (const int ranks : {2, 3}) {
    testing::ProcessSet processes = testing::start_ranks(ranks, GetParam());
    ASSERT_TRUE(processes.wait_all(testing::in_seconds(90))) << processes.report();
    EXPECT_TRUE(processes.all_succeeded()) << processes.report();
  }
}

TEST(DeviceCollectives, TakeTensorsOfTheDeviceWhateverTheirStrides) {
  on_devices([&](const Group& group, at::Device device) {
    const double mine = group->rank() + 1;
    const at::Tensor transposed = torch::full({2, 3}, mine).to(device).t();
    const Work work = all_reduce_async(transposed, {.group = group});
    EXPECT_TRUE(work.is_completed()) << "queued, so done for the host";
    work.wait();
    work.wait();
    EXPECT_TRUE(torch::equal(transposed.cpu(), torch::full({3, 2}, 3.0)));

    std::vector<at::Tensor> outputs = {torch::zeros({2}, device), torch::zeros({2}, device)};
    all_gather(outputs, torch::full({2}, mine).to(device), {.group = group});
    EXPECT_TRUE(torch::equal(outputs[1].cpu(), torch::full({2}, 2.0)));

    broadcast(transposed, 1, {.group = group});
    outputs[0] = torch::zeros({2});
    try {
      all_gather(outputs, torch::ones({2}, device), {.group = group});
      FAIL() << "tensors of two devices were taken";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("outputs[0] is on cpu, the other tensor on privateuseone:"));
    }
  });
}

// A batch norm with its tensors on a device.
torch::nn::BatchNorm1d norm_on(at::Device device) {
  torch::nn::BatchNorm1d norm(4);
  norm->weight = norm->weight.detach().to(device).requires_grad_();
  norm->bias = norm->bias.detach().to(device).requires_grad_();
  norm->running_mean = norm->running_mean.to(device);
  norm->running_var = norm->running_var.to(device);
  return norm;
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(DeviceBatchNorm, IsNotConvertedOnADevice) {
  on_devices([](const Group& group, at::Device device) {
    torch::nn::Sequential model(torch::nn::BatchNorm1d(4), norm_on(device));
    const auto refused =
        ::testing::AllOf(HasSubstr("\"1\""), HasSubstr("is on " + device.str()), HasSubstr("lockstep::SyncBatchNorm"));
    EXPECT_THAT(error_of([&] { convert_sync_batchnorm(model, group); }), refused);
    // No layer was converted: a call on one rank waits for no other.
    if (group->rank() == 0) {
      EXPECT_EQ(model[0]->as<torch::nn::BatchNorm1d>()->forward(at::randn({3, 4})).size(0), 3);
    }
  });
}

TEST(DeviceBatchNorm, RefusesToTrainWhenItWasMovedAfterItsConversion) {
  on_devices([](const Group& group, at::Device device) {
    torch::nn::BatchNorm1d norm(4);
    EXPECT_EQ(convert_sync_batchnorm(norm, group), 1);
    // LibTorch 1.13 does not let the weight follow; real devices' tensors stay the same objects.
    norm->running_mean = norm->running_mean.to(device);
    norm->running_var = norm->running_var.to(device);
    const at::Tensor input = at::randn({3, 4}).to(device);
    EXPECT_THAT(error_of([&] { norm(input); }),
                ::testing::AllOf(HasSubstr(device.str()), HasSubstr("convert_sync_batchnorm")));
  });
}

TEST(DeviceBatchNorm, SyncBatchNormReportsThatItsGroupHasNoEngineForTheDevice) {
  testing::install_fake_device();
  testing::run_ranks(kRanks, [](const Group& cpu) {
    SyncBatchNorm norm(torch::nn::BatchNormOptions(4).affine(false).track_running_stats(false), cpu);
    EXPECT_THAT(error_of([&] { norm(at::randn({3, 4}).to(device_of(cpu))); }), HasSubstr("SyncBatchNorm"));
  });
}

TEST(DeviceBucket, ItsReductionWaitsForAllStreamsThatFilledIt) {
  testing::install_fake_device();
  const at::Device device(kFake, 0);
  const Group group = make_process_group(Communicator::create_threads(1).front());
  const at::Tensor parameter = torch::zeros({3}, device), gradient = torch::ones({3}, device);
  detail::Bucket bucket(*group, {parameter, parameter, parameter}, {{1}, {1}, {1}}, false);
  EXPECT_EQ(bucket.flat().device(), device);
  testing::take_stream_waits();
  for (const int stream : {1, 2, 3}) {
    testing::set_fake_stream(0, stream);
    bucket.put(static_cast<std::size_t>(stream) - 1, gradient, 1);
  }
  bucket.gather_streams();  // on stream 3
  EXPECT_THAT(testing::take_stream_waits(), UnorderedElementsAre("3<1", "3<2"));

  testing::set_fake_stream(0, 2);
  for (const std::size_t slot : {0, 1, 2}) bucket.put(slot, gradient, 1);
  bucket.gather_streams();
  EXPECT_THAT(testing::take_stream_waits(), ElementsAre()) << "one stream needs no order";
  testing::set_fake_stream(0, 0);
}

}  // namespace
}  // namespace lockstep
