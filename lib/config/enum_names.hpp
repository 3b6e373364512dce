// The texts of the job file for each enumeration of the typed sections: for reading, checking and writing.
#pragma once
#include "config/member_type.hpp"

namespace dslaunch::config {

inline constexpr EnumName<OptimizerType> kOptimizerTypes[] = {
    {"AdamW", OptimizerType::kAdamW},
    {"Adam", OptimizerType::kAdam},
    {"SGD", OptimizerType::kSgd},
    {"Adagrad", OptimizerType::kAdagrad},
    {"Lamb", OptimizerType::kLamb},
    {"Lion", OptimizerType::kLion},
    {"Muon", OptimizerType::kMuon},
    {"RMSprop", OptimizerType::kRmsprop},
    {"NAdam", OptimizerType::kNadam},
    {"RAdam", OptimizerType::kRadam},
    {"Adamax", OptimizerType::kAdamax},
    {"Adadelta", OptimizerType::kAdadelta},
    {"Rprop", OptimizerType::kRprop},
    {"ASGD", OptimizerType::kAsgd},
    {"Adafactor", OptimizerType::kAdafactor},
    {"AdamW8bit", OptimizerType::kAdamW8bit},
    {"OneBitAdam", OptimizerType::kOneBitAdam},
    {"OneBitLamb", OptimizerType::kOneBitLamb},
    {"ZeroOneAdam", OptimizerType::kZeroOneAdam},
};

inline constexpr EnumName<SchedulerType> kSchedulerTypes[] = {
    {"WarmupLR", SchedulerType::kWarmupLR},
    {"WarmupDecayLR", SchedulerType::kWarmupDecayLR},
    {"WarmupCosineLR", SchedulerType::kWarmupCosineLR},
    {"LRRangeTest", SchedulerType::kLRRangeTest},
    {"OneCycle", SchedulerType::kOneCycle},
    // Hugging Face's names; optimizer_rules.cpp replaces them by the schedule with their shape.
    {"linear", SchedulerType::kWarmupDecayLR},
    {"cosine", SchedulerType::kWarmupCosineLR},
    {"constant", SchedulerType::kWarmupLR},
    {"constant_with_warmup", SchedulerType::kWarmupLR},
};

inline constexpr EnumName<WarmupType> kWarmupTypes[] = {{"log", WarmupType::kLog}, {"linear", WarmupType::kLinear}};

inline constexpr EnumName<DifficultySchedule> kDifficultySchedules[] = {
    {"fixed_linear", DifficultySchedule::kFixedLinear},
    {"fixed_root", DifficultySchedule::kFixedRoot},
    {"fixed_discrete", DifficultySchedule::kFixedDiscrete}};

inline constexpr EnumName<RateScaling> kRateScalings[] = {
    {"linear", RateScaling::kLinear}, {"sqrt", RateScaling::kSqrt}, {"none", RateScaling::kNone}};

inline constexpr EnumName<PickingOrder> kPickingOrders[] = {
    {"dataloader", PickingOrder::kDataloader}, {"random", PickingOrder::kRandom}, {"seqlen", PickingOrder::kSeqlen}};

inline constexpr EnumName<LossAverage> kLossAverages[] = {{"micro_batches", LossAverage::kMicroBatches},
                                                          {"tokens", LossAverage::kTokens}};

inline constexpr EnumName<MetricMode> kMetricModes[] = {{"min", MetricMode::kMin}, {"max", MetricMode::kMax}};

inline constexpr EnumName<OffloadDevice> kOffloadDevices[] = {
    {"none", OffloadDevice::kNone}, {"cpu", OffloadDevice::kHost}, {"nvme", OffloadDevice::kFile}};

inline constexpr EnumName<PipelineSchedule> kPipelineSchedules[] = {
    {"1f1b", PipelineSchedule::k1F1B}, {"gpipe", PipelineSchedule::kGPipe}, {"zb-h1", PipelineSchedule::kZbH1}};

inline constexpr EnumName<TensorSplit> kTensorSplits[] = {
    {"column", TensorSplit::kColumn}, {"row", TensorSplit::kRow}, {"whole", TensorSplit::kWhole}};

inline constexpr EnumName<Fp8Recipe> kFp8Recipes[] = {{"tensorwise", Fp8Recipe::kTensorwise},
                                                      {"rowwise", Fp8Recipe::kRowwise},
                                                      {"rowwise_with_gw_hp", Fp8Recipe::kRowwiseWithGwHp}};

// DeepSpeed's keys differ in the names of types that they accept.
inline constexpr EnumName<ScalarType> kCommunicationTypes[] = {
    {"fp32", ScalarType::kFp32}, {"bf16", ScalarType::kBf16}, {"fp16", ScalarType::kFp16}};

inline constexpr EnumName<ScalarType> kAutocastTypes[] = {
    {"bfloat16", ScalarType::kBf16},      {"float16", ScalarType::kFp16}, {"torch.bfloat16", ScalarType::kBf16},
    {"torch.float16", ScalarType::kFp16}, {"bf16", ScalarType::kBf16},    {"fp16", ScalarType::kFp16},
    {"half", ScalarType::kFp16},
};

inline constexpr EnumName<ScalarType> kAccumulationTypes[] = {
    {"fp32", ScalarType::kFp32},          {"bf16", ScalarType::kBf16},           {"fp16", ScalarType::kFp16},
    {"float32", ScalarType::kFp32},       {"bfloat16", ScalarType::kBf16},       {"float16", ScalarType::kFp16},
    {"torch.float32", ScalarType::kFp32}, {"torch.bfloat16", ScalarType::kBf16}, {"torch.float16", ScalarType::kFp16},
    {"float", ScalarType::kFp32},         {"half", ScalarType::kFp16},
};

}  // namespace dslaunch::config
