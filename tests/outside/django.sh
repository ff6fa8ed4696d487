# shellcheck shell=bash disable=SC2154 # run's variables
# Tests of a framework for applications, in databases that are kept from run to run:
# after warm restarts, each test has the result that it had before.
version=5.2.19 driver='psycopg[binary,pool]==3.2.13'
tests=(backends queries transactions transaction_hooks select_for_update bulk_create constraints)

command -v python3 >/dev/null || skip_suite outside "django: python3 is not installed"
home=$BUILD/outside/django-$version
if ! [ -e "$home/complete" ]; then
	rm -rf "$home"
	{
		python3 -m venv "$home/venv" && "$home/venv/bin/pip" download --no-deps --no-binary :all: -d "$home" "django==$version" &&
			tar -xzf "$home/django-$version.tar.gz" -C "$home" && "$home/venv/bin/pip" install "$home/django-$version" "$driver" tblib
	} >"$BUILD/log/outside-django.log" 2>&1 || skip_suite outside "django: its source or its driver cannot be had here; see build/log/outside-django.log"
	touch "$home/complete"
fi
cat >"$work/outside_settings.py" <<CONF
DATABASES = {n: {"ENGINE": "django.db.backends.postgresql", "NAME": "django_" + n, "USER": "postgres", "HOST": "$sock", "PORT": "${port[a]}",
                 "TEST": {"NAME": "test_" + n}} for n in ("default", "other")}
SECRET_KEY = "of a test"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
USE_TZ = False
CONF

# suite FILE: run it; the file gets the result of each test
suite() {
	(cd "$home/django-$version/tests" && PYTHONPATH=$work "$home/venv/bin/python" runtests.py --settings=outside_settings --keepdb --noinput --parallel=1 \
		-v 2 "${tests[@]}") >"$1.out" 2>"$1.log" || true
	grep -E '^test\w* \(|\.\.\. (ok|skipped .*|expected failure|unexpected success|FAIL|ERROR)$' "$1.log" >"$1" || true
	grep -E '^Ran [0-9]+ tests|^(OK|FAILED)' "$1.log" | sed 's/ in .*//' | tee -a "$1"
}

cluster a
for n in default other; do "$bin/createdb" "django_$n"; done
suite "$work/before"
is "all tests pass before a restart" "$(grep -cE '^Ran [0-9]{3,} tests|^OK' "$work/before")" 2
for i in 1 2; do
	fault a
	start a "restart $i, $how"
	suite "$work/after"
	is "restart $i, $how: each test as before" "$(diff "$work/before" "$work/after" | head -n 10)" ''
	sound a "restart $i, $how"
done
