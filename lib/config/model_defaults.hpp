// What a model file asks for where the job file says nothing. Plain data.
#pragma once
#include <string>
#include <vector>

namespace dslaunch::config {

struct ModelDefaults {
  bool averages_over_labels = false;  // "loss_average": "tokens"
  bool recomputes = false;            // activation checkpointing
  std::vector<std::string> units;     // what is recomputed, by class; empty: the repeated blocks
};

}  // namespace dslaunch::config
