// What types and operators' schemas say about memory: which values have any, what an operator's results share with its
// arguments, and which arguments it writes to. Pure.
#pragma once
#include <torch/csrc/jit/ir/ir.h>

#include <vector>

namespace dslaunch::runtime::model::graph {

// Values of tuples inside tuples, one by one: "((a, b), c)" has three.
std::vector<c10::TypePtr> leaves_of(const c10::TypePtr& type);

// Numbers, strings and functions have none.
bool has_memory(const c10::TypePtr& type);
// A list or a dict, or an optional one.
bool is_container(const c10::TypePtr& type);
// Of a container: those of what it holds that has memory.
std::vector<c10::TypePtr> held_types(const c10::TypePtr& type);

// What an output shares with an input: nothing; its memory; or the output is a container of it.
enum class Sharing { kNothing, kAnything, kContents };
// A result without alias information in the schema may share everything; the elements of a new list may be those of any
// input.
Sharing sharing_of(const torch::jit::Node* node, size_t output, size_t input);

enum class Writing { kNothing, kContainer, kElements };
// `list.append(t)` changes the list, `_foreach_add_(list, 1)` its elements; of a tensor its elements.
Writing writing_of(const torch::jit::Node* node, size_t input);

}  // namespace dslaunch::runtime::model::graph
