#include "launch/plan/devices.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "support/expect_error.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;
using Names = std::vector<std::string>;

static const std::vector<Gpu> kGpus{{"GPU-aaaa-1", "H"}, {"GPU-aabb-2", "H"}, {"GPU-cccc-3", "H"}, {"GPU-dddd-4", "H"}};

TEST_CASE("without CUDA_VISIBLE_DEVICES all devices are visible", "[launch][devices]") {
  CHECK(visible_devices(kGpus, {}) == Names{"0", "1", "2", "3"});
  CHECK(visible_devices({}, {}).empty());
}

TEST_CASE("indices and UUIDs are honoured in their order", "[launch][devices]") {
  CHECK(visible_devices(kGpus, "3,1") == Names{"3", "1"});
  CHECK(visible_devices(kGpus, "GPU-cccc-3, 0") == Names{"GPU-cccc-3", "0"});
  CHECK(visible_devices(kGpus, "GPU-d") == Names{"GPU-d"});
  CHECK(visible_devices(kGpus, "MIG-1234") == Names{"MIG-1234"});
}

TEST_CASE("the list ends before its first invalid entry", "[launch][devices]") {
  CHECK(visible_devices(kGpus, "0,-1,2") == Names{"0"});
  CHECK(visible_devices(kGpus, "1,9,2") == Names{"1"});
  CHECK(visible_devices(kGpus, "GPU-aa,0").empty());  // fits two
  CHECK(visible_devices(kGpus, "").empty());
  CHECK(visible_devices(kGpus, "-1").empty());
}

TEST_CASE("a device named twice hides all", "[launch][devices]") {
  CHECK(visible_devices(kGpus, "0,0").empty());
  CHECK(visible_devices(kGpus, "0,GPU-aaaa-1").empty());
}

TEST_CASE("the choice of a device follows what is visible", "[launch][devices]") {
  DeviceSituation none, two{4, {"0", "1"}};
  CHECK(choose_device(DeviceChoice::kAuto, none, DeviceUser::kOurWorker) == "cpu");
  CHECK(choose_device(DeviceChoice::kCpu, two, DeviceUser::kOurWorker) == "cpu");
  CHECK(choose_device(DeviceChoice::kAuto, two, DeviceUser::kAnyProgram) == "cuda");
  CHECK_THROWS_AS(choose_device(DeviceChoice::kCuda, none, DeviceUser::kAnyProgram), UserError);

  // GPUs that do not answer are no reason to train on the CPU, unless somebody says so; one of several is.
  const DeviceSituation broken{0, {}, "the driver is broken"}, one_lost{1, {"0"}, "GPU 1 of 2 is lost"};
  const DeviceSituation none_left{1, {}, "GPU 0 of 2 is lost"};  // CUDA_VISIBLE_DEVICES named the other place
  for (const auto choice : {DeviceChoice::kAuto, DeviceChoice::kCuda}) {
    for (const auto& situation : {broken, none_left}) {
      test::expect_error(ExitCode::kUnavailable, {situation.error, "--device cpu"},
                         [&] { choose_device(choice, situation, DeviceUser::kAnyProgram); });
    }
  }
  CHECK(choose_device(DeviceChoice::kCpu, broken, DeviceUser::kAnyProgram) == "cpu");
  CHECK(choose_device(DeviceChoice::kAuto, one_lost, DeviceUser::kAnyProgram) == "cuda");
}
