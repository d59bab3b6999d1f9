"""All studies. Modules that compute are imported when a study runs, so a command's help is fast."""

from collections.abc import Mapping
from dataclasses import replace

from slslab_lab.studies.study import REPLAYED, Study

CURVES = "Read the curves of slslab accuracy here (by default the project's own)."

TABLE2 = Study(
    name="table2",
    paper="barrak-2025",
    source="experiments",
    document="table2",
    about="""Time, memory and cost of an epoch: five architectures, MobileNet and ResNet-18, as released and canonical.

    \b
    slslab reproduce table2 --fidelity replayed
    slslab reproduce table2 --model mobilenet --dataset synthetic
    slslab reproduce table2 --fidelity full --out table2-full
    slslab reproduce table2 --fidelity full --on ray

    Sampled and full make a run per row, one after another, or on a Ray cluster one at a time on each node. After
    Ctrl-C, the same command continues with the missing runs. One speed of Lambda's processors is fitted to all rows.
    """,
    options=("models", "fidelity", "batches", "dataset", "runs_on", "profile", "prices", "recordings", "out"),
    texts={
        "dataset": "cifar10, synthetic, or folder:PATH of class folders. Times don't depend on the images.",
    },
    # Minibatches of each worker; None means the value of --batches.
    effort={"sampled": None, "full": 24},
    amounts=("runs some of the minibatches here", "all of them"),
    further="atlas.serverless_gpu",
)

TABLE3 = Study(
    name="table3",
    paper="barrak-2025",
    document="table3",
    about="""Accuracy, and the time to it: epochs of the accuracy curves × modelled seconds of an epoch. Also Figure 4.

    \b
    slslab reproduce table3
    slslab reproduce table3 --target 0.6
    slslab reproduce table3 --plot figure4.svg

    Curves are measured (slslab accuracy), canonical and as released. Architectures that compute the same parameters,
    bit by bit, share a curve. Seconds of an epoch are modelled from the recordings of reproduce table2. Curves aren't
    extrapolated. --plot draws all of them by epoch and by time; the paper doesn't print the data of its Figure 4.
    """,
    options=("target", "plot", "accuracy", "recordings", "dataset", "profile", "prices", "out"),
    texts={
        "accuracy": CURVES,
        "recordings": "Read Table 2's runs here (by default the project's own).",
        "dataset": "Curves of this data set.",
    },
)

MLLESS_FILTER = replace(
    TABLE3,
    name="mlless-filter",
    source="table3",
    document="filtering",
    about="""MLLess's significance filter: seconds to an accuracy with and without it, and the ratio, 13 in the paper.

    Both reach the same accuracy. Epochs are measured; an epoch's seconds are modelled with the share of the gradients
    that each sends; messages and bytes are exact.
    """,
)

FIGURE2 = Study(
    name="fig2",
    paper="barrak-2025",
    document="patterns",
    about="""Barrak et al., Figure 2: communication of AllReduce and ScatterReduce, 4 to 16 workers (on aws-us-east-1).

    The model plays one round of each pattern: every worker puts its gradient, all get the sum. It does so as slslab's
    workers do, and as the authors' code does, with its polls and log traffic. Less than 15 % is a tie. Each row shows
    in which interval of the object store's latency × bandwidth ÷ gradient size each pattern wins, found by playing
    other gradient sizes on the same profile.
    """,
    options=("out", "profile", "plot"),
)

LAMBDAML_TABLE3 = replace(
    FIGURE2,
    name="lambdaml-table3",
    paper="lambdaml-2021",
    about="""LambdaML, Table 3: communication of AllReduce and ScatterReduce over S3 (on lambdaml-2021).

    The model plays one round of each pattern, as in fig2.
    """,
    profile="lambdaml-2021",
)

LAMBDAML_TABLE1 = Study(
    name="lambdaml-table1",
    paper="lambdaml-2021",
    document="lambdaml.table1",
    about="""LambdaML, Table 1: seconds and cost of training with Memcached and DynamoDB, over those with S3.

    \b
    slslab reproduce lambdaml-table1
    slslab reproduce lambdaml-table1 --profile aws-us-east-1

    Jobs with the paper's workers are replayed from rounds of 2 workers: on a running node, with the node's start, and
    with functions that wait for the start. Ratios agree within 25 %; otherwise they say if the same channel is better.
    """,
    profile="lambdaml-2021",
    options=("fidelity", "profile", "prices", "recordings", "out"),
    usual=REPLAYED,
    effort={"sampled": None},
    amounts=("runs rounds of 2 workers with each channel here",),
)

LAMBDAML_FIGURE7 = Study(
    name="lambdaml-fig7",
    paper="lambdaml-2021",
    document="lambdaml.figure7",
    about="""LambdaML, Figure 7: rounds of communication to a loss by GA-SGD, MA-SGD and ADMM, and k-means by EM.

    \b
    slslab reproduce lambdaml-fig7
    slslab reproduce lambdaml-fig7 --fidelity replayed --plot fig7.svg

    Logistic regression, a linear SVM and k-means on breast-cancer and higgs-shaped are trained in one process, with the
    same bits as a run, in less than a minute. Equal seeds give equal losses. MobileNet by GA-SGD and MA-SGD comes from
    accuracy curves, which take long: slslab accuracy allreduce --algorithm ma.
    """,
    options=("fidelity", "accuracy", "recordings", "plot", "out"),
    texts={
        "accuracy": "Read MobileNet's curves of slslab accuracy here (by default the project's own).",
    },
    # Seeds.
    effort={"sampled": 3, "full": 10},
    amounts=("trains the small models from 3 seeds", "from 10"),
    kept="losses",
)

LAMBDAML_FIGURE8 = Study(
    name="lambdaml-fig8",
    paper="lambdaml-2021",
    document="lambdaml.figure8",
    about="""LambdaML, Figure 8: the loss of workers that wait for each other (BSP) and of workers that don't (S-ASP).

    \b
    slslab reproduce lambdaml-fig8
    slslab reproduce lambdaml-fig8 --fidelity replayed

    S-ASP's losses depend on which worker is faster and differ between runs. So it is run, for half a minute to a minute
    each time, and the runs are kept (slslab runs). BSP is computed in one process, with the same bits as a run.
    Logistic regression on breast-cancer and higgs-shaped, at two rates.
    """,
    options=("fidelity", "recordings", "plot", "out"),
    effort=LAMBDAML_FIGURE7.effort,
    amounts=("makes 12 runs of S-ASP, from 3 seeds", "40, from 10"),
    kept=LAMBDAML_FIGURE7.kept,
)

IN_DATABASE = Study(
    name="in-database",
    paper="barrak-2025",
    source="in_database.measurements",
    document="in_database.table",
    about="""SPIRT's averaging and update of the model, 24 gradients: fetched and put back, or computed in the database.

    \b
    slslab reproduce in-database --fidelity replayed
    slslab reproduce in-database --model mobilenet

    Measured with the embedded tensor database over loopback (ResNet-18 takes 5 GB and a minute or two). The model uses
    the requests and bytes of both ways on the profile, and nothing is fitted.
    """,
    options=("models", "fidelity", "profile", "recordings", "out"),
    # Repetitions of each way.
    effort={"sampled": 5, "full": 15},
    amounts=("measures each way a few times here", "more often"),
    kept="measurements",
)

GRADSSHARDING = Study(
    name="gradssharding",
    paper="gradssharding-2026",
    document="gradssharding",
    about="""Seconds and cost of a round of GradsSharding, λ-FL and LIFL on AWS: predicted for RQ3, fitted to RQ2.

    \b
    slslab reproduce gradssharding

    RQ3's eight rounds were predicted, with 80 % intervals, before they were compared with the measurements. The
    predictions are kept as they were made. The profile's network is fitted to RQ2's five rounds, never to RQ3.
    --profile chooses the platform of RQ2's model.
    """,
    profile="aws-us-east-1-2026",
    options=("profile", "out"),
)

KUBEML_TIMES = Study(
    name="kubeml-times",
    paper="kubeml-2023",
    document="kubeml.times",
    about="""KubeML's seconds of 30 epochs of ResNet34 by merges.

    \b
    slslab reproduce kubeml-times
    slslab reproduce kubeml-times --json

    Its pattern is played on the profile for 16 sizes of minibatches and K. One constant is fitted: the rate at which a
    tensor moves. The computing time of an epoch comes from the four rows with one merge an epoch.
    """,
    options=("profile", "out"),
)

KUBEML_ACCURACY = Study(
    name="kubeml-accuracy",
    paper="kubeml-2023",
    document="kubeml.accuracy",
    about="""KubeML's accuracy by global batch: LeNet on MNIST's images, 1, 2 and 4 functions.

    \b
    slslab reproduce kubeml-accuracy
    slslab reproduce kubeml-accuracy --fidelity replayed
    slslab reproduce kubeml-accuracy --fidelity full --on local

    Twelve small models are trained in one process, with the same bits as a run: some minutes on 2 cores; full takes
    nine times as long. The paper's figure, shown for comparison, uses ResNet34 on CIFAR-10.
    """,
    options=("fidelity", "train_on", "recordings", "out"),
    # Seeds, and epochs: the paper's are 30.
    effort={"sampled": (1, 10), "full": (3, 30)},
    amounts=("trains 10 epochs from 1 seed", "30 from 3"),
    kept="accuracies",
)

BYZANTINE = Study(
    name="byzantine",
    paper="spirt-2023",
    document="byzantine",
    about="""Accuracy under Byzantine workers by attack and rule, 1 and 2 of 5 attacking, and the cost of each rule.

    \b
    slslab reproduce byzantine
    slslab reproduce byzantine --fidelity replayed
    slslab reproduce byzantine --fidelity full --on local

    LeNet on digits: 153 small models are trained in one process, with the same bits as a run, in some minutes on 2
    cores. Full takes three times as long; --on trains over many cores. Then the rules are timed, one at a time, on
    gradients of LeNet, MobileNet and ResNet-18.
    """,
    options=("fidelity", "prices", "train_on", "recordings", "out"),
    # Seeds.
    effort={"sampled": 1, "full": 3},
    amounts=("trains from 1 seed", "from 3"),
    kept="accuracies",
)

SERVERLESS_GPU = Study(
    name="serverless-gpu",
    paper="barrak-2025",
    document="atlas.serverless_gpu",
    about="""The paper's open question: would functions with GPUs, paid by use, change the comparison?

    \b
    slslab reproduce serverless-gpu

    Table 2's job on CPU functions, on functions with GPUs (Modal, Cloud Run, RunPod) and on GPU instances: seconds and
    USD with ranges, and what would have to be different for the answer to flip. Only a T4 has public figures.
    """,
    options=("out",),
)

STUDIES: Mapping[str, Study] = {
    study.name: study
    for study in (
        *(TABLE2, TABLE3, FIGURE2, MLLESS_FILTER),
        *(LAMBDAML_TABLE1, LAMBDAML_TABLE3, LAMBDAML_FIGURE7, LAMBDAML_FIGURE8),
        *(IN_DATABASE, GRADSSHARDING, KUBEML_TIMES, KUBEML_ACCURACY, BYZANTINE, SERVERLESS_GPU),
    )
}
