/* forerun.h -- all of Forerun. */
#ifndef FORERUN_FORERUN_H
#define FORERUN_FORERUN_H

#include <forerun/attrs.h>
#include <forerun/backend.h>
#include <forerun/base.h>
#include <forerun/clock.h>
#include <forerun/compare.h>
#include <forerun/cost.h>
#include <forerun/data.h>
#include <forerun/efficiency.h>
#include <forerun/engine.h>
#include <forerun/events.h>
#include <forerun/exec_plan.h>
#include <forerun/export.h>
#include <forerun/graph.h>
#include <forerun/groups.h>
#include <forerun/io.h>
#include <forerun/models.h>
#include <forerun/operators.h>
#include <forerun/optim.h>
#include <forerun/plan.h>
#include <forerun/predict.h>
#include <forerun/probe.h>
#include <forerun/report.h>
#include <forerun/run.h>
#include <forerun/sched.h>
#include <forerun/sim.h>
#include <forerun/stability.h>
#include <forerun/state.h>
#include <forerun/team.h>
#include <forerun/tokens.h>
#include <forerun/train.h>
#include <forerun/transport.h>
#include <forerun/weights.h>

#endif
