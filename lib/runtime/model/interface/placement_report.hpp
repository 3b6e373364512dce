// What a plan of placements comes to, for the user: which GEMMs are split, and why others are not. Plain data.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch::runtime::model {

struct ReportedGemm {
  std::string parameter;  // its weight
  std::string split;      // "column", "row"; empty: whole
  int64_t elements = 0;
  std::string reason = {};  // why it is whole, as a clause; empty: it is split
};

// What the comparison of split units with their unsplit forms came to; a difference is an error instead.
struct ProbeReport {
  int num_compared = 0;
  std::vector<std::string> not_compared;  // a line for each such unit, with the reason
  // "probe: 3 of 3 distinct units agree with their unsplit form, forward and backward".
  std::string summary() const;
};

struct PlacementReport {
  int ranks = 1;
  std::vector<ReportedGemm> gemms;  // in the order of the parameter table
  std::vector<std::string> notes;   // units that could not be analyzed, with the reason
  // Where random numbers are drawn on parts of a value, on each rank its own: "dropout in 'Block'". Each once.
  std::vector<std::string> draws_on_parts = {};
  std::optional<ProbeReport> probe = {};
  int64_t split_elements() const;
  int64_t gemm_elements() const;
  // "tensor parallel: 2 ranks split 28 of 29 GEMMs (97.1 % of their parameters)".
  std::string summary() const;
  // "1.2 % of the parameters of GEMMs stay whole: 'h.0.mlp.router.weight' and 11 more: they are ...", one line for
  // each reason, the largest share first; then the notes.
  std::vector<std::string> whole_lines() const;
};

}  // namespace dslaunch::runtime::model
