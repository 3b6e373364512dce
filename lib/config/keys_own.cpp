// Sections of our own: data, loss, train, checkpoint, units, init, tf32, deterministic, kernels.
#include "config/key_rows.hpp"

namespace dslaunch::config {
namespace {

constexpr KeySpec kRows[] = {
    section("data"),
    key<&JobConfig::data, &Data::train>("data.train",
                                        "training data: a path, a list of paths, a glob, or \"synthetic\"")
        .unset(),
    key<&JobConfig::data, &Data::eval>("data.eval", "evaluation data, named like data.train").unset(),
    key<&JobConfig::data, &Data::format>("data.format", "how the data files are read; auto: by their endings")
        .one_of("auto|safetensors|npy|npz|tokens|megatron"),
    key<&JobConfig::data, &Data::inputs>("data.inputs",
                                         "array names in the order of forward; null: all arrays but labels, label, y")
        .unset()
        .split_at_commas(),
    key<&JobConfig::data, &Data::labels>("data.labels", "array names passed after the inputs; null: labels, label, y")
        .unset()
        .split_at_commas(),
    key<&JobConfig::data, &Data::dtype>("data.dtype", "type of one token in a token stream without header")
        .one_of("uint8|uint16|int32|uint32|int64"),
    key<&JobConfig::data, &Data::seq_len>("data.seq_len", "tokens of one sample of a token stream, also of Megatron's")
        .unset()
        .min(1),
    key<&JobConfig::data, &Data::shuffle>("data.shuffle", "a new random order of the samples in every epoch"),
    key<&JobConfig::data, &Data::seed>("data.seed", "seed of that order and of synthetic data").min(0),
    key<&JobConfig::data, &Data::drop_last>(
        "data.drop_last",
        "drop the remainder of an epoch that fills no batch; false: join it with the next epoch's first samples"),
    key<&JobConfig::data, &Data::num_workers>("data.num_workers", "threads of each rank that read and assemble batches")
        .min(0)
        .max(1024),
    key<&JobConfig::data, &Data::prefetch>(
        "data.prefetch", "micro batches that are assembled ahead; null: 4, or those of a step if it has more")
        .min(1)
        .max(65536),
    optional_section("data.normalize", "uint8 pictures become (pixel / 255 - mean) / std on the device"),
    key<&JobConfig::data, &Data::normalize, &Normalize::mean>("data.normalize.mean",
                                                              "mean of each channel, of pixels from 0 to 1")
        .unset(),
    key<&JobConfig::data, &Data::normalize, &Normalize::std>("data.normalize.std",
                                                             "standard deviation of each channel, likewise")
        .unset()
        .above(0),
    optional_section("data.random_crop", "trains on a random part of each picture; an evaluation takes the middle"),
    key<&JobConfig::data, &Data::random_crop, &RandomCrop::size>(
        "data.random_crop.size", "height and width of the part; null: as the pictures have them")
        .unset()
        .min(1),
    key<&JobConfig::data, &Data::random_crop, &RandomCrop::padding>(
        "data.random_crop.padding", "pixels of value 0 that are added on each side before")
        .min(0)
        .max(65536),
    key<&JobConfig::data, &Data::random_flip>(
        "data.random_flip", "mirrors a random half of the pictures left to right; not in evaluations"),
    named_section("data.synthetic", "arrays that are made up instead of read: NAME: {shape, …}"),
    section("data.synthetic.*", "one made-up array"),
    key<&ArraySpec::shape>("data.synthetic.*.shape", "shape of one sample; [] is a scalar").unset().min(1),
    key<&ArraySpec::dtype>("data.synthetic.*.dtype", "type of the elements")
        .one_of("float32|float64|int64|int32|int16|int8|uint8|bool"),
    key<&ArraySpec::low>("data.synthetic.*.low", "smallest value"),
    key<&ArraySpec::high>("data.synthetic.*.high", "values stay below it"),
    key<&ArraySpec::like>("data.synthetic.*.like", "take shape, type and values of that array").unset(),

    key<&JobConfig::loss>(
        "loss",
        "cross_entropy, mse or a TorchScript file called as loss(outputs, labels); null: forward returns the loss")
        .unset(),
    key<&JobConfig::outputs>(
        "outputs",
        "the entry of forward's result that loss and train.metrics take: a key or field, or an index; null: "
        "logits, the only one, or a tuple's first")
        .unset()
        .or_index(),
    key_as<EnumMember<kLossAverages>, &JobConfig::loss_average>(
        "loss_average",
        "the loss is the mean of the micro batches' means; tokens: of all labels but those to ignore (-100)"),

    section("train"),
    key<&JobConfig::train, &Train::steps>("train.steps",
                                          "end of the run in optimizer steps, counted from the start of training")
        .min(1),
    key<&JobConfig::train, &Train::epochs>("train.epochs", "end of the run in passes over the data; without steps: 1")
        .min(1),
    key<&JobConfig::train, &Train::eval_interval>("train.eval_interval",
                                                  "steps between evaluations; 0: only at the end")
        .min(0),
    key<&JobConfig::train, &Train::seed>("train.seed", "seed of the random numbers in the model").min(0),
    rule_key("train.metrics", kAny, "[]",
             "what evaluations measure beside the loss: perplexity, accuracy, {name, module: a TorchScript file}"),
    optional_section("train.early_stopping", "ends the run when a value of its evaluations no longer gets better"),
    key<&JobConfig::train, &Train::early_stopping, &EarlyStopping::metric>("train.early_stopping.metric",
                                                                           "eval_loss or eval_NAME of train.metrics"),
    key<&JobConfig::train, &Train::early_stopping, &EarlyStopping::max_without_better>(
        "train.early_stopping.patience", "evaluations in a row without a better value that end the run")
        .min(1),
    key<&JobConfig::train, &Train::early_stopping, &EarlyStopping::min_delta>(
        "train.early_stopping.min_delta", "a value is better only by more than this")
        .min(0),
    key_as<EnumMember<kMetricModes>, &JobConfig::train, &Train::early_stopping, &EarlyStopping::mode>(
        "train.early_stopping.mode", "which values are better; null: as the metric says"),
    optional_section("train.samples", "texts that the model writes at each evaluation"),
    rule_key("train.samples.prompts", kAny, "[]",
             "what they begin with: texts, {prompt or ids, reference}; or a file with one a line"),
    key<&JobConfig::train, &Train::samples, &Samples::num_tokens>("train.samples.num_tokens",
                                                                  "the most tokens that are added to a prompt")
        .min(1),
    key<&JobConfig::train, &Train::samples, &Samples::temperature>("train.samples.temperature",
                                                                   "of the draws; 0: always the likeliest token")
        .min(0),
    key<&JobConfig::train, &Train::samples, &Samples::top_k>("train.samples.top_k",
                                                             "draws from so many of the likeliest tokens; 0: from all")
        .min(0),
    key<&JobConfig::train, &Train::samples, &Samples::top_p>(
        "train.samples.top_p", "draws from the likeliest tokens that together have this probability")
        .above(0)
        .max(1),
    key<&JobConfig::train, &Train::samples, &Samples::seed>("train.samples.seed", "seed of the draws").min(0),
    key<&JobConfig::train, &Train::samples, &Samples::stop>("train.samples.stop",
                                                            "texts in front of which a text ends"),
    key<&JobConfig::train, &Train::samples, &Samples::tokenizer>(
        "train.samples.tokenizer", "file or directory of the tokenizer; null: the one of the model")
        .unset(),
    key<&JobConfig::train, &Train::samples, &Samples::metric_command>(
        "train.samples.metric_command",
        "shell command that reads the texts as JSON lines and prints an object of numbers, which become eval_NAME")
        .unset(),

    section("checkpoint"),
    key<&JobConfig::checkpoint, &Checkpoint::dir>("checkpoint.dir",
                                                  "directory of checkpoints; null: checkpoints in the run directory")
        .unset(),
    key<&JobConfig::checkpoint, &Checkpoint::interval>("checkpoint.interval",
                                                       "steps between checkpoints; 0: only as the next keys say")
        .min(0),
    key<&JobConfig::checkpoint, &Checkpoint::keep_last>("checkpoint.keep_last", "how many checkpoints are kept").min(1),
    optional_section("checkpoint.keep_best",
                     "keeps the checkpoints with the best evaluations as well; a number is short for count"),
    key<&JobConfig::checkpoint, &Checkpoint::keep_best, &KeepBest::metric>("checkpoint.keep_best.metric",
                                                                           "eval_loss or eval_NAME of train.metrics"),
    key_as<EnumMember<kMetricModes>, &JobConfig::checkpoint, &Checkpoint::keep_best, &KeepBest::mode>(
        "checkpoint.keep_best.mode", "which values are better; null: as the metric says"),
    key<&JobConfig::checkpoint, &Checkpoint::keep_best, &KeepBest::count>("checkpoint.keep_best.count",
                                                                          "how many are kept beside keep_last")
        .min(1),
    key<&JobConfig::checkpoint, &Checkpoint::at_end>("checkpoint.at_end", "write one when the run ends"),
    key<&JobConfig::checkpoint, &Checkpoint::on_interrupt>("checkpoint.on_interrupt",
                                                           "write one when the run is asked to stop"),
    key<&JobConfig::checkpoint, &Checkpoint::async>("checkpoint.async",
                                                    "write in the background while training continues"),
    section("checkpoint.load"),
    key<&JobConfig::checkpoint, &Checkpoint::load, &CheckpointLoad::optimizer_states>(
        "checkpoint.load.optimizer_states",
        "--resume PATH also loads the optimizer's moments; false: moments start from zero, step and schedule continue"),
    key<&JobConfig::checkpoint, &Checkpoint::load, &CheckpointLoad::weights_only>(
        "checkpoint.load.weights_only",
        "--resume PATH takes weights and buffers only; steps, schedule and data start from scratch"),
    key<&JobConfig::checkpoint, &Checkpoint::load, &CheckpointLoad::strict>(
        "checkpoint.load.strict",
        "--resume PATH needs the same names on both sides; false: takes what model and checkpoint have in common"),

    key<&JobConfig::units>(
        "units",
        "class names or module paths of the units that are gathered and recomputed as one; auto: repeated blocks")
        .unset("\"auto\""),
    optional_section("init", "fills a model that was exported empty"),
    key<&JobConfig::init, &Init::seed>("init.seed", "seed of the initial weights").min(0),
    key<&JobConfig::init, &Init::std>("init.std", "their standard deviation").min(0),
    key<&JobConfig::init, &Init::from>(
        "init.from", "directory of Hugging Face's weights to read them from; every rank reads what it keeps")
        .unset(),
    key<&JobConfig::tf32>(
        "tf32", "fp32 matrix products and convolutions on GPUs use TF32; null: PyTorch's default, convolutions only"),
    key<&JobConfig::deterministic>("deterministic", "only operations whose results repeat bit by bit"),

    section("kernels"),
    key<&JobConfig::kernels, &Kernels::cross_entropy>(
        "kernels.cross_entropy",
        "on GPUs cross entropy reads logits of 16 bits as they are, without copies in fp32; false: PyTorch's"),
    key<&JobConfig::kernels, &Kernels::chunked_cross_entropy>(
        "kernels.chunked_cross_entropy",
        "on GPUs a head's logits and their loss are computed a part of the rows at a time; needs "
        "kernels.cross_entropy; null: true in stages 0 to 2 without pipeline stages")
        .unset(),
    key<&JobConfig::kernels, &Kernels::layer_norm>(
        "kernels.layer_norm", "on GPUs layer norms get all their gradients in one pass; false: PyTorch's"),
    key<&JobConfig::kernels, &Kernels::bias_gradient>(
        "kernels.bias_gradient",
        "on GPUs the biases of linear layers get their gradient from a kernel of ours; false: PyTorch's"),
    key<&JobConfig::kernels, &Kernels::fused_regions>(
        "kernels.fused_regions",
        "on GPUs chains of elementwise operators, norms and the like become generated kernels; false: PyTorch's"),
    key<&JobConfig::kernels, &Kernels::weight_gradient>(
        "kernels.weight_gradient",
        "linear layers write the gradients of their weights where they are summed; false: they are copied there"),
    key<&JobConfig::kernels, &Kernels::residual_gradient>(
        "kernels.residual_gradient",
        "on GPUs layer norms and generated kernels add the gradient of the residual stream to theirs"),
    key<&JobConfig::kernels, &Kernels::gemm_autotuning>(
        "kernels.gemm_autotuning",
        "on GPUs matrix products of trained linear layers use cuBLASLt's algorithms that are measured as the fastest; "
        "false: PyTorch's choice"),
    key<&JobConfig::kernels, &Kernels::size_arithmetic>(
        "kernels.size_arithmetic", "sizes that a trace computes as tensors are computed as integers"),
    key<&JobConfig::kernels, &Kernels::constants>(
        "kernels.constants",
        "what depends only on sizes and unchanged buffers (masks, rotary tables) is computed once per shape and kept"),
    key<&JobConfig::kernels, &Kernels::attention_masks>(
        "kernels.attention_masks",
        "attention uses a kept mask that is causal, or allows everything, as such; needs kernels.constants"),
    key<&JobConfig::kernels, &Kernels::grouped_attention>(
        "kernels.grouped_attention", "attention takes repeated heads of keys and values before their repetition"),
};

}  // namespace

std::span<const KeySpec> own_keys() {
  return kRows;
}

}  // namespace dslaunch::config
