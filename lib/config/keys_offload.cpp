// zero_optimization.offload_optimizer, offload_param and sub_group_size, and aio.
#include "config/key_rows.hpp"

namespace dslaunch::config {
namespace {

constexpr KeySpec kRows[] = {
    section("zero_optimization.offload_optimizer",
            "masters and moments are kept outside of the GPU and updated by the CPU (stages 1 to 3)"),
    key_as<EnumMember<kOffloadDevices>, &JobConfig::zero, &Zero::offload_optimizer, &OffloadOptimizer::device>(
        "zero_optimization.offload_optimizer.device",
        "where masters and moments are kept; none: on the GPU, cpu: in host memory, nvme: in files"),
    key<&JobConfig::zero, &Zero::offload_optimizer, &OffloadOptimizer::nvme_path>(
        "zero_optimization.offload_optimizer.nvme_path",
        "nvme: a directory, or several; ~ and $VARIABLE are those of each node")
        .unset(),
    key<&JobConfig::zero, &Zero::offload_optimizer, &OffloadOptimizer::buffer_count>(
        "zero_optimization.offload_optimizer.buffer_count", "nvme: sub-groups in host memory at a time")
        .min(1)
        .max(1024),
    key<&JobConfig::zero, &Zero::offload_optimizer, &OffloadOptimizer::pin_memory>(
        "zero_optimization.offload_optimizer.pin_memory",
        "page-lock the host memory of gradients and updated parameters; false: they are copied through a small "
        "page-locked ring"),
    key<&JobConfig::zero, &Zero::offload_optimizer, &OffloadOptimizer::pipeline_read>(
        "zero_optimization.offload_optimizer.pipeline_read", "nvme: read the next sub-groups while one is updated"),
    key<&JobConfig::zero, &Zero::offload_optimizer, &OffloadOptimizer::pipeline_write>(
        "zero_optimization.offload_optimizer.pipeline_write", "nvme: write a sub-group while the next one is updated"),
    key<&JobConfig::zero, &Zero::offload_optimizer, &OffloadOptimizer::ratio>(
        "zero_optimization.offload_optimizer.ratio",
        "stage 3: share of the optimizer state that is offloaded; the units that are used first stay on the GPU")
        .min(0)
        .max(1),
    key<&JobConfig::zero, &Zero::offload_optimizer, &OffloadOptimizer::cores_share>(
        "zero_optimization.offload_optimizer.cpuadam_cores_perc", "share of a rank's cores that an update uses")
        .min(0)
        .max(1),
    rule_key("zero_optimization.offload_optimizer.delayed_update", kAny, "false",
             "true: an update takes effect one step later and runs under the next step; {warmup_steps: N}: the first N "
             "steps have no delay"),

    section("zero_optimization.offload_param", "stage 3: parameters are kept outside of the GPU between their uses"),
    key_as<EnumMember<kOffloadDevices>, &JobConfig::zero, &Zero::offload_param, &OffloadParam::device>(
        "zero_optimization.offload_param.device",
        "stage 3: where parameters are kept; none: on the GPU, cpu: in host memory, nvme: in files"),
    key<&JobConfig::zero, &Zero::offload_param, &OffloadParam::nvme_path>(
        "zero_optimization.offload_param.nvme_path",
        "nvme: a directory, or several; ~ and $VARIABLE are those of each node")
        .unset(),
    key<&JobConfig::zero, &Zero::offload_param, &OffloadParam::buffer_count>(
        "zero_optimization.offload_param.buffer_count",
        "nvme: buffers in host memory, through which parameters reach the GPU")
        .min(1)
        .max(1024),
    key<&JobConfig::zero, &Zero::offload_param, &OffloadParam::buffer_size>(
        "zero_optimization.offload_param.buffer_size",
        "nvme: elements of one of these buffers, at most; a rank's part of a unit that is larger takes several")
        .min(1)
        .or_fraction(),
    key<&JobConfig::zero, &Zero::offload_param, &OffloadParam::max_in_cpu>(
        "zero_optimization.offload_param.max_in_cpu",
        "nvme: elements of a rank that are kept in host memory instead, those of the first units")
        .min(0)
        .or_fraction(),
    key<&JobConfig::zero, &Zero::offload_param, &OffloadParam::pin_memory>(
        "zero_optimization.offload_param.pin_memory",
        "page-lock the host memory of parameters; false: they are copied through a small page-locked ring. nvme: of "
        "what "
        "max_in_cpu keeps in host memory; its buffers are always page-locked"),

    key<&JobConfig::zero, &Zero::sub_group_size>(
        "zero_optimization.sub_group_size", "elements that an offloaded update works on at once, at most; 0: 65536")
        .min(0)
        .or_fraction(),

    section("aio", "how state in files is read and written"),
    key<&JobConfig::aio, &Aio::block_size>("aio.block_size", "bytes of one read or write; a multiple of 4096")
        .min(1)
        .max(1 << 30),
    key<&JobConfig::aio, &Aio::queue_depth>("aio.queue_depth", "reads and writes in flight, of one thread")
        .min(1)
        .max(4096),
    key<&JobConfig::aio, &Aio::num_threads>("aio.intra_op_parallelism", "threads of a rank that read and write")
        .min(1)
        .max(1024),
};

}  // namespace

std::span<const KeySpec> offload_keys() {
  return kRows;
}

}  // namespace dslaunch::config
