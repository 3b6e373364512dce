// Parts of what a fused GEMM makes, cut where they lie. Where a view makes a dim of heads and parts of that dim are
// taken out of it (queries of several heads, one key and one value), each part is cut out of the flat dim, and then
// viewed: so each of them can be split in its own way. On the thread that loads the model; changes the graph and what
// is known of it.
#pragma once
#include "runtime/model/graph/flat_graph.hpp"
#include "runtime/model/placement/known_values.hpp"

namespace dslaunch::runtime::model::placement {

void slice_before_views(graph::FlatGraph& flat, KnownValues& known);

}  // namespace dslaunch::runtime::model::placement
