"""`slslab reproduce kubeml-times`: how long KubeML takes by merges."""

from pathlib import Path

from slslab.cli.reproduction import finish, folder, profile_option, replayed_out_option, reproduction


@reproduction("kubeml-times", profile_option, replayed_out_option)
def kubeml_times(profile: str, out: Path | None, json_: bool) -> None:
    """KubeML's seconds of 30 epochs of ResNet34 by merges, and to an accuracy.

    \b
    slslab reproduce kubeml-times
    slslab reproduce kubeml-times --json

    Its pattern is played on the profile for 16 sizes of minibatches and K. One constant is fitted: the rate at which a
    tensor moves. What an epoch computes is taken from the four rows with one merge an epoch.
    """
    from slslab.papers.paper import load_paper
    from slslab.replay.profiles.profile import load_profile
    from slslab.reproductions.kubeml_times import NAME, PAPER, build

    finish(build(load_paper(PAPER), load_profile(profile)), out or folder(NAME), json_)
