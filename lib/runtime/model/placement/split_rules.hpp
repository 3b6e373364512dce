// The choices of a job about single GEMMs, found by the names of modules and parameters. Pure; any thread.
#pragma once
#include <string>
#include <vector>

#include "runtime/model/placement/choose_layouts.hpp"
#include "runtime/model/placement/tensor_parallel_options.hpp"
#include "runtime/state/parameter_table.hpp"

namespace dslaunch::runtime::model::placement {

// The first rule that matches the weight of a GEMM; null: none. `block_class`: of the block that reads it; empty: it
// is read outside of blocks.
const config::TensorSplitRule* rule_for(const TensorParallelOptions& options, const std::string& block_class,
                                        const std::string& parameter);
GivenSplit given_by(const config::TensorSplitRule& rule);

// Throws UserError(65) for a rule whose module no parameter of the model belongs to.
void require_known_modules(const TensorParallelOptions& options, const ParameterTable& table);

// Throws UserError(65) for a rule that the GEMM cannot follow, and where `options` demand a rule for each GEMM.
void check_rules(const TensorParallelOptions& options, const std::string& block_class, const std::string& parameter,
                 const PlannedGemm& gemm);

}  // namespace dslaunch::runtime::model::placement
