"""`slslab calibrate --processor`: compare this host's processor with Lambda's."""

from typing import Any

from slslab.installation import cache_directory
from slslab.predict.anchors import load_anchors, minor_version
from slslab.predict.processor import Host, anchor_residuals
from slslab.processor.kept import NAME, load_measurement, measure_processor
from slslab.processor.measurement import Progress, read_versions


def calibrate_processor(progress: Progress) -> dict[str, Any]:
    """Measure this host's processor with the full workloads and store the result; return the printed document."""
    processor = measure_processor(progress=progress)
    measurement = load_measurement()
    assert measurement is not None
    anchors, timings = load_anchors(), measurement.timings
    versions = read_versions()
    host = Host(timings, minor_version(versions["python"]), minor_version(versions["torch"]), anchors)
    factors = host.anchor_factors()
    residuals = anchor_residuals(factors, anchors)
    return {
        "schema": 1,
        "processor": processor.to_dict(),
        "kinds": {kind: kind_of_work.title for kind, kind_of_work in anchors.kinds.items()},
        "path": str(cache_directory() / NAME),
        "load": measurement.load,
        "anchors": [
            {
                "anchor": name,
                "kind": anchors.anchors[name].kind,
                "year": anchors.anchors[name].year,
                "lambda_s": anchors.anchors[name].seconds["x86_64"],
                # With the library versions of the anchor.
                "host_s": anchors.anchors[name].seconds["x86_64"] / factor,
                "measured": all(workload == name for workload in anchors.anchors[name].hosts),
                "factor": factor,
                "residual": residuals[name][0] if name in residuals else None,
                "predicted_from": residuals[name][1] if name in residuals else [],
                "source": anchors.anchors[name].source,
            }
            for name, factor in factors.items()
        ],
        "workloads": {
            name: {"form": timing.form, "cpu_s": list(timing.cpu_s), "spread": timing.spread}
            for name, timing in timings.items()
        },
        # The error of the short form's ratio to the reference machine, relative to the whole form's.
        "short_forms": {
            name: (anchors.workloads[name].seconds("short") / short.least)
            / (anchors.workloads[name].seconds("whole") / timings[name].least)
            - 1
            for name, short in measurement.checks.items()
            if name in measurement.whole
        },
    }
