// Line plots as SVG text: panels one below the other, each with axes, ticks, and a line or several. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace manta::metrics {

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;  // (x, y), x ascending; non-finite y are left out
  bool markers = false;                           // a dot at each point: for few, far apart
};
struct Panel {
  std::string title;
  std::vector<Series> series;
};

// A document of its own, with a white background. Panels without a point say "no data".
std::string PlotSvg(std::string_view title, std::string_view x_label, const std::vector<Panel>& panels);

// About `count` round numbers (1, 2 or 5 times a power of ten apart) that lie within [low, high].
std::vector<double> RoundTicks(double low, double high, int count);

}  // namespace manta::metrics
