"""All experiments, by name."""

from typing import Any

from sterna.experiments.burcea.showing.commute import BurceaCommute
from sterna.experiments.burcea.showing.covering import BurceaCovering
from sterna.experiments.burcea.showing.model import BurceaModel
from sterna.experiments.burcea.showing.pervasive import BurceaPervasive
from sterna.experiments.burcea.showing.roaming import BurceaRandom
from sterna.experiments.cilia_bootstrapping.experiment import CiliaBootstrapping
from sterna.experiments.cilia_variants.experiment import CiliaVariants
from sterna.experiments.experiment import Experiment
from sterna.experiments.fiege_figure_2 import FiegeFigure2
from sterna.experiments.fiege_figure_3 import FiegeFigure3
from sterna.experiments.fiege_figure_9.experiment import FiegeFigure9
from sterna.experiments.fiege_tables import FiegeTables
from sterna.experiments.handover_latency import HandoverLatency
from sterna.experiments.huang_table_1.experiment import HuangTable1
from sterna.experiments.mft.clients import MftClients
from sterna.experiments.mft.protocols import MftProtocols
from sterna.experiments.mft.sequences import MftSequences
from sterna.experiments.quenching.experiment import Quenching
from sterna.experiments.queue_policies import QueuePolicies
from sterna.experiments.replication_faults.experiment import ReplicationFaults
from sterna.experiments.routing import Routing

EXPERIMENTS: dict[str, Experiment[Any, Any]] = {
    experiment.name: experiment
    for experiment in (
        Routing(),
        Quenching(),
        QueuePolicies(),
        FiegeFigure2(),
        HandoverLatency(),
        FiegeTables(),
        FiegeFigure3(),
        FiegeFigure9(),
        BurceaCommute(),
        BurceaRandom(),
        BurceaPervasive(),
        BurceaCovering(),
        BurceaModel(),
        CiliaBootstrapping(),
        CiliaVariants(),
        HuangTable1(),
        ReplicationFaults(),
        MftSequences(),
        MftProtocols(),
        MftClients(),
    )
}
