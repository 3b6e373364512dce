// What a stage of a pipeline keeps in memory, for the message when that is too much. Any thread.
#pragma once
#include <string>

#include "runtime/model/interface/model_facts.hpp"
#include "runtime/pipeline/schedule.hpp"

namespace dslaunch::runtime::engine::step {

// Which layers the stage has, the activations of how many micro batches it keeps, beside the other stages, and what
// would need less memory or balance it: complete sentences.
std::string describe_stage_memory(const model::StageFacts& stage, pipeline::ScheduleKind kind, int num_micro_batches);

}  // namespace dslaunch::runtime::engine::step
