#include "command_line/description.hpp"

namespace dslaunch::command_line {
namespace {

thread_local CommandDescription* described = nullptr;

OptionDescription describe(const CLI::Option& option) {
  OptionDescription out{.names = {},
                        .value = option.get_type_name(),
                        .help = option.get_description(),
                        .group = option.get_group(),
                        .is_positional = option.get_positional()};
  if (out.is_positional) {
    out.names.push_back(option.get_name(/*positional=*/true));
    return out;
  }
  for (const auto& name : option.get_lnames()) out.names.push_back("--" + name);
  for (const auto& name : option.get_snames()) out.names.push_back("-" + name);
  if (option.get_items_expected_max() == 0) out.value.clear();
  return out;
}

}  // namespace

DescribeInstead::DescribeInstead(CommandDescription& to) {
  described = &to;
}

DescribeInstead::~DescribeInstead() {
  described = nullptr;
}

CommandDescription* DescribeInstead::target() {
  return described;
}

std::vector<OptionDescription> describe_options(const CLI::App& app) {
  std::vector<OptionDescription> out;
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_group().empty()) out.push_back(describe(*option));
  }
  return out;
}

}  // namespace dslaunch::command_line
