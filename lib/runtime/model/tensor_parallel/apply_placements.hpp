// Puts a plan of placements into a model: each graph becomes that of one tensor rank, with collectives where a value is
// needed whole, and the parameter table says which part of each parameter the rank holds. On the thread that loads the
// model, before units are intercepted.
#pragma once
#include "runtime/model/placement/plan_placements.hpp"
#include "runtime/model/tensor_parallel/tensor_group.hpp"
#include "runtime/state/parameter_table.hpp"

namespace dslaunch::runtime::model::tensor_parallel {

// Edits the copies of the plan and gives them to the forwards of the modules.
void apply_placements(placement::ModelPlan& plan, const TensorGroupPtr& group, ParameterTable& table);

// The graph of one plan alone, in place.
void edit_graph(placement::GraphPlan& plan, const TensorGroupPtr& group);

// Of a graph that never runs backward: without what only backward needs, and sums in place where nothing else reads
// what is summed.
void drop_backward(torch::jit::Graph& graph);

}  // namespace dslaunch::runtime::model::tensor_parallel
