import _ from "lodash";

export default (task) => {
  const { people } = task.json();
  return {
    groups: _.mapValues(_.groupBy(people, "team"), (of) => _.sumBy(of, "age")),
    names: _.chain(people).sortBy("name").map("name").map(_.upperFirst).value(),
    same: _.isEqual(_.cloneDeep(people), people),
    text: _.template("<%= n %> people, <%- '<b>' %>")({ n: people.length }),
    merged: _.merge({ a: { b: 1 } }, { a: { c: [1] } }),
  };
};
