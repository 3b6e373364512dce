// `dslaunch config check` and `dslaunch config explain`.
#include <cstdio>

#include "base/printable.hpp"
#include "commands.hpp"
#include "config/load.hpp"
#include "config/report.hpp"
#include "options.hpp"

namespace dslaunch::launcher {

int config_command(const Arguments& arguments) {
  auto options = read_config_options(arguments);
  if (!options) return 0;
  std::vector<config::Override> overrides;
  for (const auto& text : options->sets) overrides.push_back(config::parse_set_option(text));
  auto loaded = config::load_file(options->file, overrides, {.world_size = options->world_size});
  std::string text;
  if (options->json) {
    text = (options->explain ? config::explain_json(loaded, options->choice) : config::check_json(loaded)) + "\n";
  } else {
    text = options->explain && loaded.ok() ? config::explain_text(loaded, options->choice) : config::check_text(loaded);
  }
  // The JSON document goes to standard output with or without issues; as text, issues go to standard error.
  if (options->json) {
    std::fputs(text.c_str(), stdout);
  } else {
    print_text(text, loaded.ok() ? stdout : stderr);
  }
  return to_int(loaded.exit_code());
}

}  // namespace dslaunch::launcher
