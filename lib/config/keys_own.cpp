// Sections of our own: data, loss, train, checkpoint, units, init, tf32, deterministic, kernels.
#include "config/key_rows.hpp"

namespace dslaunch::config {
namespace {

constexpr KeySpec kRows[] = {
    section("data"),
    supported("data.train", kStringList, "null", "training data: a path, a list of paths, a glob, or \"synthetic\""),
    supported("data.eval", kStringList, "null", "evaluation data, named like data.train"),
    supported("data.format", kEnum, "\"auto\"", "how the data files are read; auto: by their endings")
        .one_of("auto|safetensors|npy|npz|tokens|megatron"),
    supported("data.inputs", kStringList, "null",
              "array names in the order of forward; null: all arrays but labels, label, y")
        .split_at_commas(),
    supported("data.labels", kStringList, "null", "array names passed after the inputs; null: labels, label, y")
        .split_at_commas(),
    supported("data.dtype", kEnum, "\"uint16\"", "type of one token in a token stream without header")
        .one_of("uint8|uint16|int32|uint32|int64"),
    supported("data.seq_len", kInt, "null", "tokens of one sample of a token stream, also of Megatron's").min(1),
    supported("data.shuffle", kBool, "true", "a new random order of the samples in every epoch"),
    supported("data.seed", kInt, "0", "seed of that order and of synthetic data").min(0),
    supported("data.drop_last", kBool, "true",
              "drop the remainder of an epoch that fills no batch; false: join it with the next epoch's first samples"),
    supported("data.num_workers", kInt, "2", "threads of each rank that read and assemble batches").min(0).max(1024),
    supported("data.prefetch", kInt, "4", "batches that are assembled ahead").min(1).max(65536),
    {"data.synthetic", kNamed, "null", Status::kSupported, "arrays that are made up instead of read: NAME: {shape, …}"},
    {"data.synthetic.*", kSection, "null", Status::kSupported, "one made-up array"},
    supported("data.synthetic.*.shape", kIntList, "null", "shape of one sample; [] is a scalar").min(1),
    supported("data.synthetic.*.dtype", kEnum, "\"float32\"", "type of the elements")
        .one_of("float32|float64|int64|int32|int16|int8|uint8|bool"),
    supported("data.synthetic.*.low", kFloat, "0.0", "smallest value"),
    supported("data.synthetic.*.high", kFloat, "1.0", "values stay below it"),
    supported("data.synthetic.*.like", kString, "null", "take shape, type and values of that array"),

    supported(
        "loss", kString, "null",
        "cross_entropy, mse or a TorchScript file called as loss(outputs, labels); null: forward returns the loss"),
    supported("loss_average", kEnum, "\"micro_batches\"",
              "the loss is the mean of the micro batches' means; tokens: of all labels but those to ignore (-100)")
        .one_of("micro_batches|tokens"),

    section("train"),
    supported("train.steps", kInt, "null", "end of the run in optimizer steps, counted from the start of training")
        .min(1),
    supported("train.epochs", kInt, "null", "end of the run in passes over the data; without steps: 1").min(1),
    supported("train.eval_interval", kInt, "0", "steps between evaluations; 0: only at the end").min(0),
    supported("train.seed", kInt, "42", "seed of the random numbers in the model").min(0),

    section("checkpoint"),
    supported("checkpoint.dir", kString, "null", "directory of checkpoints; null: checkpoints in the run directory"),
    supported("checkpoint.interval", kInt, "0", "steps between checkpoints; 0: only as the next keys say").min(0),
    supported("checkpoint.keep_last", kInt, "2", "how many checkpoints are kept").min(1),
    supported("checkpoint.at_end", kBool, "true", "write one when the run ends"),
    supported("checkpoint.on_interrupt", kBool, "true", "write one when the run is asked to stop"),
    supported("checkpoint.async", kBool, "true", "write in the background while training continues"),
    section("checkpoint.load"),
    supported(
        "checkpoint.load.optimizer_states", kBool, "true",
        "--resume PATH also loads the optimizer's moments; false: moments start from zero, step and schedule continue"),
    supported("checkpoint.load.weights_only", kBool, "false",
              "--resume PATH takes weights and buffers only; steps, schedule and data start from scratch"),
    supported(
        "checkpoint.load.strict", kBool, "true",
        "--resume PATH needs the same names on both sides; false: takes what model and checkpoint have in common"),

    supported(
        "units", kStringList, "\"auto\"",
        "class names or module paths of the units that are gathered and recomputed as one; auto: repeated blocks"),
    {"init", kSection, "null", Status::kSupported, "fills a model that was exported empty"},
    supported("init.seed", kInt, "0", "seed of the initial weights").min(0),
    supported("init.std", kFloat, "0.02", "their standard deviation").min(0),
    supported("tf32", kBool, "null",
              "fp32 matrix products and convolutions on GPUs use TF32; null: PyTorch's default, convolutions only"),
    supported("deterministic", kBool, "false", "only operations whose results repeat bit by bit"),

    section("kernels"),
    supported("kernels.cross_entropy", kBool, "true",
              "on GPUs cross entropy reads logits of 16 bits as they are, without copies in fp32; false: PyTorch's"),
    supported("kernels.layer_norm", kBool, "true",
              "on GPUs layer norms get all their gradients in one pass; false: PyTorch's"),
    supported("kernels.bias_gradient", kBool, "true",
              "on GPUs the biases of linear layers get their gradient from a kernel of ours; false: PyTorch's"),
};

}  // namespace

std::span<const KeySpec> own_keys() {
  return kRows;
}

}  // namespace dslaunch::config
