// What the graph passes made of a model's forward, and what they left: for people who wonder where its time goes. Plain
// data.
#pragma once
#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace dslaunch::runtime::model {

struct GraphReport {
  // A fused region, as often as forward calls it.
  struct Region {
    std::string module;                  // path of the unit that it is in: "h.0"; empty: the model itself
    std::vector<std::string> operators;  // in order: "aten::add"
  };
  // An operator that a region may contain and none does.
  struct Left {
    std::string name, reason;
    auto operator<=>(const Left& other) const = default;
  };
  std::vector<Region> regions;
  std::map<Left, int64_t> left;             // with the number of calls in a forward
  std::map<std::string, int64_t> replaced;  // operators of ours, likewise: "dslaunch::linear"
  std::vector<std::string> switched_off;    // passes, by the config: "kernels.constants"
  std::string why_no_regions;               // the pass did not run; empty: it did
};

}  // namespace dslaunch::runtime::model
