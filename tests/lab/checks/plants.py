"""All that is planted: here in the messages of each architecture."""

from tests.lab.checks.planting import Planted, Planting, plant, planted

# It has added its own.
from tests.lab.checks.plants_of_any import PLANTS

__all__ = ["PLANTS"]

# --- AllReduce ---


@plant
def a_gradient_that_was_never_put() -> Planted:
    p = Planting("allreduce")
    p.drop(p.find("object.put", "/gradients/e1/s2/1"))
    return planted(p, "lost", None, "stray", "counts", "objects", worker=1, place=(1, 2))


@plant
def a_gradient_that_rank_0_left_out() -> Planted:
    p = Planting("allreduce")
    p.drop(p.find("object.get", "/gradients/e2/s1/1"))
    put = p.find("object.put", "/gradients/e2/s1/1")
    return planted(p, "lost", put, "counts", worker=0)


@plant
def a_mean_that_a_worker_did_not_take() -> Planted:
    p = Planting("allreduce")
    p.drop(p.find("object.get", "/merged/e0_s3"))
    put = p.find("object.put", "/merged/e0_s3")
    return planted(p, "lost", put, "counts", worker=1)


@plant
def a_gradient_that_rank_0_added_twice() -> Planted:
    p = Planting("allreduce")
    again = p.repeat(p.find("object.get", "/gradients/e0/s1/1"))
    return planted(p, "twice", again, "counts")


@plant
def a_gradient_that_was_put_twice() -> Planted:
    p = Planting("allreduce")
    again = p.repeat(p.find("object.put", "/gradients/e0/s1/1"))
    return planted(p, "twice", again, "counts")


@plant
def a_minibatch_that_was_computed_twice() -> Planted:
    p = Planting("allreduce")
    again = p.repeat(p.find("compute", worker=1, epoch=1, step=1))
    return planted(p, "twice", again)


@plant
def a_minibatch_that_nobody_computed() -> Planted:
    p = Planting("allreduce")
    p.drop(p.find("compute", worker=0, epoch=1, step=1))
    return planted(p, "lost", None, worker=0, place=(1, 1))


@plant
def a_mean_of_another_content() -> Planted:
    p = Planting("allreduce")
    got = p.find("object.get", "/merged/e1_s0")
    got["etag"] = '"0"'
    return planted(p, "altered", got)


@plant
def a_gradient_that_was_cut_short() -> Planted:
    p = Planting("allreduce")
    put = p.find("object.put", "/gradients/e1/s0/1")
    put["bytes"] //= 2
    p.find("object.get", "/gradients/e1/s0/1")["bytes"] = put["bytes"]
    return planted(p, "altered", put)


@plant
def a_mean_of_the_step_before() -> Planted:
    p = Planting("allreduce")
    late = p.find("object.get", "/merged/e1_s0")
    late["step"] = 1
    return planted(p, "stray", late)


@plant
def a_gradient_that_nobody_asked_for() -> Planted:
    p = Planting("allreduce")
    put = p.find("object.put", "/gradients/e1/s0/1")
    stray = p.repeat(put, resource=put["resource"].replace("/e1/s0/1", "/e1/s0/7"))
    return planted(p, "stray", stray, "counts", "objects")


@plant
def a_mean_that_was_read_before_it_was_put() -> Planted:
    p = Planting("allreduce")
    got, put = p.find("object.get", "/merged/e1_s0"), p.find("object.put", "/merged/e1_s0")
    got["end_ns"] = put["start_ns"] - 1
    got["start_ns"] = min(got["start_ns"], got["end_ns"])
    return planted(p, "early", got, "order", "overlap")


@plant
def a_step_that_began_before_all_gradients_were_there() -> Planted:
    p = Planting("allreduce")
    put, update = p.find("object.put", "/gradients/e1/s0/0"), p.find("update", worker=1, epoch=1, step=0)
    put["start_ns"] = put["end_ns"] = update["start_ns"] + 1
    return planted(p, "barrier", update, "early", "objects", "order")


@plant
def a_mean_that_was_left() -> Planted:
    p = Planting("allreduce")
    p.drop(p.find("object.delete", "/merged/e0_s2"))
    put = p.find("object.put", "/merged/e0_s2")
    return planted(p, "objects", put, "counts")


@plant
def an_object_that_was_left_and_is_no_message() -> Planted:
    p = Planting("allreduce")
    result = p.find("object.put", "/results/1")
    left = p.repeat(result, resource=result["resource"].replace("/results/1", "/scratch/1"))
    return planted(p, "objects", left)


@plant
def a_deletion_by_another_worker() -> Planted:
    p = Planting("allreduce")
    deletion = p.find("object.delete", "/gradients/e0/s0/0")
    deletion["worker"] = 1
    return planted(p, "objects", deletion)


# --- ScatterReduce ---


@plant
def a_chunk_that_was_deleted_before_its_owner_had_it() -> Planted:
    p = Planting("scatterreduce")
    deletion, got = p.find("object.delete", "/partial/e1/s1/1/0"), p.find("object.get", "/partial/e1/s1/1/0")
    deletion["start_ns"] = deletion["end_ns"] = got["start_ns"]
    return planted(p, "early", deletion, "overlap")


@plant
def a_sum_of_a_chunk_that_was_taken_twice() -> Planted:
    p = Planting("scatterreduce")
    again = p.repeat(p.find("object.get", "/merged/e1_s1/0", worker=1))
    return planted(p, "twice", again, "counts")


@plant
def a_barrier_that_was_passed_before_a_chunk_came() -> Planted:
    p = Planting("scatterreduce")
    update, put = p.find("update", worker=0, epoch=1, step=1), p.find("object.put", "/partial/e1/s1/0/1")
    update["start_ns"] = update["end_ns"] = put["start_ns"] - 1
    return planted(p, "barrier", update, "order", "overlap")


# --- other channels ---


@plant
def a_pulled_sum_that_lacks_a_gradient() -> Planted:
    p = Planting("lr-parameter-server")
    push = p.find("parameter.push", "/merged/e0_s2/1")
    p.find("parameter.pull", "/merged/e0_s2", worker=0)["causes"].remove(push["event"])
    return planted(p, "lost", push, worker=0)


@plant
def an_item_that_was_read_twice() -> Planted:
    p = Planting("lr-dynamodb")
    again = p.repeat(p.find("dynamodb.get", "/gradients/e0/s1/1"))
    return planted(p, "twice", again, "counts")


@plant
def centroids_that_a_worker_did_not_get() -> Planted:
    p = Planting("kmeans-10-memcached")
    p.drop(p.find("memcached.get", "/first"))
    return planted(p, "lost", p.find("memcached.put", "/first"), "counts", worker=1)


@plant
def a_round_without_the_global_model() -> Planted:
    p = Planting("s-asp")
    p.drop(p.find("object.get", "/global", worker=2, epoch=1, step=0))
    return planted(p, "lost", None, "counts", worker=2, place=(1, 0))


@plant
def a_round_with_two_global_models() -> Planted:
    p = Planting("s-asp")
    again = p.repeat(p.find("object.get", "/global", worker=1, epoch=1, step=1))
    return planted(p, "twice", again, "counts")


# --- MLLess ---


@plant
def a_message_that_was_counted_again_when_it_was_redelivered() -> Planted:
    p = Planting("mlless")
    again = p.repeat(p.find("queue.deliver", ".w1", overhead=False, number=5))
    return planted(p, "twice", again)


@plant
def an_update_that_was_announced_and_not_stored() -> Planted:
    p = Planting("mlless")
    stored = p.find("tensor.set", overhead=False, worker=1)
    p.drop(stored)
    return planted(p, "lost", None, "stray", worker=1, place=(stored["epoch"], stored["step"]))


@plant
def an_update_that_a_worker_did_not_get() -> Planted:
    p = Planting("mlless")
    stored = p.find("tensor.set", overhead=False, worker=0)
    at = {"epoch": stored["epoch"], "step": stored["step"]}
    got = next(e for e in p.events if e["op"] == "tensor.get" and stored["event"] in e["causes"] and e["worker"] == 1)
    assert {name: got[name] for name in at} == at
    p.drop(got)
    return planted(p, "lost", stored, worker=1)


@plant
def a_decision_that_a_worker_was_not_told() -> Planted:
    p = Planting("mlless")
    decision = p.find("queue.publish", ".updates", overhead=False, worker=2, number=3)
    told = next(
        e for e in p.events if e["op"] == "queue.deliver" and e["etag"] == decision["etag"] and e["worker"] == 1
    )
    p.drop(told)
    return planted(p, "lost", decision, worker=1, place=(told["epoch"], told["step"]))


@plant
def a_decision_before_all_had_reported() -> Planted:
    p = Planting("mlless")
    decision = p.find("queue.publish", ".updates", overhead=False, worker=2, number=3)
    told = next(e for e in p.events if e["op"] == "queue.deliver" and e["etag"] == decision["etag"])
    report = p.find("queue.publish", ".supervisor", worker=0, epoch=told["epoch"], step=told["step"])
    report["start_ns"] = report["end_ns"] = decision["start_ns"] + 1
    place = told["epoch"], told["step"]
    return planted(p, "barrier", decision, "early", "order", "overlap", place=place)


@plant
def an_update_that_the_filter_none_did_not_send() -> Planted:
    p = Planting("mlless-logged")
    assert p.run.plan.options["filter"] == "none"
    sent = p.find("queue.publish", ".updates", overhead=False, worker=1, number=2)
    dropped = [e for e in p.events if e["op"] == "queue.deliver" and e["etag"] == sent["etag"]]
    for event in (sent, *dropped):
        p.drop(event)
    return planted(p, "lost", None, "counts", worker=1, place=(sent["epoch"], sent["step"]))


@plant
def a_queue_that_was_left() -> Planted:
    p = Planting("mlless")
    p.drop(p.find("queue.delete", ".w0"))
    return planted(p, "queues", p.find("queue.declare", ".w0"))


@plant
def an_environment_that_was_left() -> Planted:
    p = Planting("mlless")
    killed = p.find("environment.kill")
    p.drop(killed)
    return planted(p, "environments", p.find("environment.start", killed["resource"]))


# --- SPIRT ---


@plant
def a_gradient_that_was_left_out_of_the_average() -> Planted:
    p = Planting("spirt")
    gradient = p.find("tensor.set", ":gradient_1_", worker=0, epoch=1, step=0)
    script = p.find("tensor.script", ":averaged_gradient_1", worker=0)
    script["causes"].remove(gradient["event"])
    return planted(p, "lost", gradient)


@plant
def a_peers_average_that_was_added_twice() -> Planted:
    p = Planting("spirt")
    again = p.repeat(p.find("tensor.get", ":averaged_gradient_2", worker=1))
    return planted(p, "twice", again, "counts")


@plant
def a_peers_average_that_was_not_added() -> Planted:
    p = Planting("spirt-naive")
    got = p.find("tensor.get", ":averaged_gradient_1", worker=1)
    p.drop(got)
    (made,) = [e for e in p.events if e["event"] in got["causes"] and e["resource"] == got["resource"]]
    return planted(p, "lost", made, "counts", worker=1)


@plant
def parameters_of_the_epoch_before() -> Planted:
    p = Planting("spirt")
    got = p.find("tensor.get", ":params", worker=1, epoch=2, step=0)
    updates = [e for e in p.events if e["op"] == "tensor.script" and e["resource"] == got["resource"]]
    (new,) = [e for e in updates if e["event"] in got["causes"]]
    before = updates[updates.index(new) - 1]
    got["causes"] = [before["event"] if cause == new["event"] else cause for cause in got["causes"]]
    return planted(p, "lost", new, "twice", place=(1, -1))


@plant
def an_aggregate_before_all_peers_were_at_the_barrier() -> Planted:
    p = Planting("spirt")
    stored = p.find("tensor.set", ":aggregated_gradient_1", worker=1)
    announced = p.find("queue.publish", "barrier", worker=0, epoch=1)
    stored["start_ns"] = stored["end_ns"] = announced["start_ns"] - 1
    return planted(p, "barrier", stored, "order", "span", place=(1, -1))


@plant
def gradients_that_a_peer_did_not_delete() -> Planted:
    p = Planting("spirt")
    p.drop(p.find("tensor.delete", worker=1, epoch=1))
    return planted(p, "objects", None, "counts", worker=1, place=(1, -1))


@plant
def a_state_that_was_not_entered() -> Planted:
    p = Planting("spirt")
    p.drop(p.find("transition", "/Update", epoch=1))
    return planted(p, "counts", None)


# --- the GPU baseline and GradsSharding ---


@plant
def a_gradient_that_an_instance_did_not_get() -> Planted:
    p = Planting("gpu")
    p.drop(p.find("object.get", "/gradients/e1_s1/0", worker=1))
    return planted(p, "lost", p.find("object.put", "/gradients/e1_s1/0"), "counts", worker=1)


@plant
def a_gradient_of_an_instance_that_was_left() -> Planted:
    p = Planting("gpu")
    p.drop(p.find("object.delete", "/gradients/e0_s1/1"))
    return planted(p, "objects", p.find("object.put", "/gradients/e0_s1/1"), "counts")


@plant
def a_slice_that_its_aggregator_left_out() -> Planted:
    p = Planting("gradssharding")
    p.drop(p.find("object.get", "/e1/s0/2/3"))
    return planted(p, "lost", p.find("object.put", "/e1/s0/2/3"), "counts", worker=6)


@plant
def a_mean_before_all_clients_had_stored_their_gradients() -> Planted:
    p = Planting("gradssharding")
    mean, gradient = p.find("object.put", "/e1/s0/level1/0"), p.find("object.put", "/e1/s0/2/3")
    mean["start_ns"] = mean["end_ns"] = gradient["start_ns"] - 1
    return planted(p, "barrier", mean, "span", "order")


@plant
def a_round_that_the_driver_did_not_delete() -> Planted:
    p = Planting("gradssharding")
    p.drop(p.find("object.delete", "/e0/s1/level1/2"))
    return planted(p, "objects", p.find("object.put", "/e0/s1/level1/2"))


# --- KubeML: a round stands for the step of its messages ---


@plant
def a_model_that_the_job_left_out() -> Planted:
    p = Planting("kubeml")
    p.drop(p.find("tensor.get", ":weight/1", 1, worker=2, epoch=1))
    stored = p.find("tensor.set", ":weight/1", 1, worker=1, epoch=1)
    return planted(p, "lost", stored, "counts", worker=2, place=(1, 1))


@plant
def a_report_that_the_job_counted_twice() -> Planted:
    p = Planting("kubeml")
    again = p.repeat(p.find("queue.deliver", worker=2, epoch=0, overhead=False))
    return planted(p, "twice", again, "counts", place=(0, 0))


@plant
def a_reference_model_that_a_function_trained_without() -> Planted:
    p = Planting("kubeml")
    p.drop(p.find("tensor.get", ":bias", 1, worker=0, epoch=0, phase="fetch"))
    stored = p.find("tensor.set", ":bias", 0, worker=2, epoch=0)
    return planted(p, "lost", stored, "counts", worker=0, place=(0, 0))


@plant
def a_merge_before_all_functions_had_reported() -> Planted:
    p = Planting("kubeml")
    merged, stored = p.find("tensor.set", ":weight", worker=2, epoch=0), p.find("tensor.set", ":bias/0", worker=0)
    stored["start_ns"] = stored["end_ns"] = merged["start_ns"] + 1
    return planted(p, "barrier", merged, "order", "early", "overlap", place=(0, 0))


@plant
def an_answer_that_a_function_did_not_get() -> Planted:
    p = Planting("kubeml")
    answer = p.find("queue.publish", ".f1", worker=2, epoch=1)
    p.drop(p.find("queue.deliver", ".f1", worker=1, epoch=1, overhead=False))
    return planted(p, "lost", answer, "counts", worker=1, place=(1, 0))


# --- Instances that add up among themselves ---


@plant
def an_all_reduce_that_a_peer_stayed_away_from() -> Planted:
    p = Planting("gloo")
    p.drop(p.find("peer.allreduce", "/e1_s0", worker=1))
    return planted(p, "lost", None, "counts", worker=1, place=(1, 0))


@plant
def a_part_that_is_shorter_than_the_rings() -> Planted:
    p = Planting("gloo")
    part = p.find("peer.allreduce", "/e0_s1", worker=2)
    part["bytes"] -= 4
    return planted(p, "altered", part)


@plant
def an_update_before_all_peers_had_come() -> Planted:
    p = Planting("gloo")
    updated, part = p.find("update", worker=0, epoch=1, step=0), p.find("peer.allreduce", "/e1_s0", worker=2)
    updated["start_ns"] = updated["end_ns"] = part["start_ns"] - 1
    return planted(p, "barrier", updated, "order", "overlap")
